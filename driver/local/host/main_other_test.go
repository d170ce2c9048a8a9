//go:build !linux

package host

import "errors"

func playDelegate(string) error { return errors.New("only Linux has supervisors") }
