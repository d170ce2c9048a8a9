//go:build !linux && !darwin && !windows

package service

import (
	"context"
	"errors"
)

var errUnknown = errors.New("this system has no service manager that the program knows: run its command server under your own")

func (i *installation) checkPlatform(context.Context) error { return errUnknown }

func (i *installation) installed(context.Context) (record, bool, error) {
	return record{}, false, errUnknown
}
func (i *installation) release(context.Context) error                { return errUnknown }
func (i *installation) createAccount(context.Context, *record) error { return errUnknown }
func (i *installation) removeAccount(context.Context, string) error  { return errUnknown }
func (i *installation) protectSettings() error                       { return errUnknown }
func (i *installation) define(context.Context, string, record) error { return errUnknown }
func (i *installation) undefine(context.Context, removal) error      { return errUnknown }
func (s Service) begin(context.Context, bool) error                  { return errUnknown }
func (s Service) halt(context.Context) error                         { return errUnknown }
func (s Service) state(context.Context) (State, error)               { return Missing, errUnknown }
func (s Service) logAdvice() string                                  { return "the log of the program" }
