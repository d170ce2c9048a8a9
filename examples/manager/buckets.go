package main

// The buckets that LOGS_ARCHIVE may name. They find their credentials where their
// clouds' own tools do.
import (
	_ "gocloud.dev/blob/azureblob"
	_ "gocloud.dev/blob/fileblob"
	_ "gocloud.dev/blob/gcsblob"
	_ "gocloud.dev/blob/s3blob"
)
