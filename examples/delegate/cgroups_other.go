//go:build !linux

package main

import "errors"

func writableControlGroup() (string, error) { return "", errors.ErrUnsupported }
