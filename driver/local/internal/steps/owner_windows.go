package steps

import "io/fs"

// sameOwner cannot tell: an owner is no part of what a folder's entry says.
func sameOwner(fs.FileInfo, fs.FileInfo) bool { return false }
