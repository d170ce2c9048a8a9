package service

import (
	"errors"
	"os"
)

// exitOnFailure ends the process of a service that ended by itself.
func exitOnFailure(err error) {
	code := 1
	if coded := (interface{ ExitCode() int })(nil); errors.As(err, &coded) {
		code = coded.ExitCode()
	}
	os.Exit(code)
}
