//! Instances, InstancesV2 and Zones on the inventory.
