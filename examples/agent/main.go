// Command agent runs the steps of one stage for a driver elsewhere: in a virtual
// machine, or next to the steps of a pod (PROTOCOL 5).
//
//	agent serve --boot boot.json                     # a machine that is set up already
//	agent boot --port /dev/virtio-ports/io.dlite.agent   # a machine that is told on a port
//	agent install DIR                                # copies itself to DIR/agent
//	agent hub, agent step, agent dial                # in the containers of a pod
//
// boot.json is an agent.Boot: address, certificates and key. With boot the same comes
// as one line through a port that the machine's host has made: the agent says
// there that it is ready and waits, which is the moment for a snapshot; what it is
// told sets the clock and the random state before a key is touched. See
// agent.PortReady.
//
// The last three are for the pods of driver/kubernetes, which sets the variables that
// they need.
//
// As the first process of a machine or a container it also does what an init must:
// it waits for processes that nobody else does, and passes signals on. It is built
// without C, so that it runs in any Linux: CGO_ENABLED=0 go build ./examples/agent
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/alecthomas/kong"

	"github.com/delegate-io/dlite/internal/process"
)

type commands struct {
	Serve   serveCommand   `cmd:"" help:"Serve until a signal comes."`
	Boot    bootCommand    `cmd:"" help:"Wait to be told on a port, then serve until a signal comes."`
	Hub     hubCommand     `cmd:"" help:"Be the hub of a pod."`
	Step    stepCommand    `cmd:"" help:"Run the step of a container of a pod."`
	Dial    dialCommand    `cmd:"" help:"Connect standard input and output with a pod's hub."`
	Install installCommand `cmd:"" help:"Copy this program into a folder."`
}

func main() {
	if code, isInit := runAsInit(); isInit {
		os.Exit(code)
	}
	if err := process.ProtectMemory(); err != nil {
		fmt.Fprintln(os.Stderr, "agent: warning: a crash may write a core dump, with secrets:", err)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	var c commands
	k := kong.Parse(&c, kong.Name("agent"), kong.Description("Runs the steps of one stage for a driver elsewhere."),
		kong.UsageOnError(), kong.BindTo(ctx, (*context.Context)(nil)))
	k.FatalIfErrorf(k.Run())
}
