#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| cloud_controller_manager_fuzz::admission_review(data));
