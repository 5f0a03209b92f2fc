"""The SDK's spelling: JSON and protobuf as they travel, and their translation from and to our own words."""
