"""What has become of the records? One page for people: counts by the hour, pictures, aggregates."""
