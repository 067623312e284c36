#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| cloud_controller_manager_fuzz::image_credentials(data));
