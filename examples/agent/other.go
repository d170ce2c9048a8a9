//go:build !linux

package main

import (
	"errors"
	"os"
	"time"
)

var errOnlyLinux = errors.New("this works on Linux alone")

func runAsInit() (code int, isInit bool) { return 0, false }

func setClock(time.Time) error { return errOnlyLinux }

func seedRandom([]byte) error { return errOnlyLinux }

func makeRaw(*os.File) error { return nil }
