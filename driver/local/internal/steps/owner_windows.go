package steps

import "io/fs"

// sameOwner returns false: the entry of a directory does not contain its owner.
func sameOwner(fs.FileInfo, fs.FileInfo) bool { return false }
