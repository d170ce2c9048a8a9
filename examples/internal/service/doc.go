// Package service installs the bundled programs as services of systemd, launchd and Windows, and connects a running
// program with its service manager.
//
// A program adds the commands, and reports its state while it runs:
//
//	service.Commands(service.Program{Name: "delegate", ...})
//
//	host, err := service.Attach(ctx, service.Config{Socket: socket, Status: status, Log: log})
//	defer host.Close()
//
// Another process reads this state with [Read], at [Service.Paths]. Start reading in status.go.
package service
