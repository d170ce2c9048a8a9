// Command release builds the bundled programs, and the files of a release from them:
//
//	go run ./internal/release all -version v0.2.0 -key minisign.key
//
// "make release" calls it. docs/releasing.md describes the files, the keys, and how a user verifies and repeats a
// release. The same table of programs, platforms and flags (programs.go, build.go) serves "make sizes", "make cross"
// and "make images".
//
// A release depends on the commit, the version, the Go version and go.sum alone. Clock, umask, user, locale,
// directory and the settings of the Go command have no influence.
package main
