"""What gets written: partly expanded inputs, options, policies and samplers."""
