//go:build !linux

package endtoend_test

func victim() {}
