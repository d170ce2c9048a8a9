//go:build !windows

package service

import "context"

// Run runs the program. As a service of Windows it obeys the service manager.
func Run(ctx context.Context, run func(context.Context) error) error { return run(ctx) }
