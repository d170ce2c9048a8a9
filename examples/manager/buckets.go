package main

// The buckets that LOGS_ARCHIVE may name. Each finds its credentials in the same places as its cloud's own tools.
import (
	_ "gocloud.dev/blob/azureblob"
	_ "gocloud.dev/blob/fileblob"
	_ "gocloud.dev/blob/gcsblob"
	_ "gocloud.dev/blob/s3blob"
)
