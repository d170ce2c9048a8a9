// Command agent runs the steps of one stage for a driver elsewhere: in a virtual
// machine, or in the containers of a pod (docs/protocol.md, section 5).
//
//	agent serve --boot boot.json                         # in a machine that is set up already
//	agent boot --port /dev/virtio-ports/io.dlite.agent   # in a machine that gets its settings through a port
//	agent install DIR                                    # copies itself to DIR/agent
//	agent hub, agent step, agent dial                    # in the containers of a pod
//	agent storage restore|save|upload                    # in a step for a cache or an upload
//
// boot.json is an agent.Boot: address, certificates and key. The command boot reads the
// same as one line from a port that the machine's host has made. The agent writes there
// that it is ready, and waits: this is the moment for a snapshot. Before it looks at a
// key, it sets the clock and the random state from that line. See bootport.Ready.
//
// The commands hub, step and dial are for the pods of driver/kubernetes, which sets the
// variables that they read.
//
// As the first process of a machine or a container the agent also does the work of an
// init: it reaps orphaned processes and passes signals on. Build it without C, so that it
// runs on any Linux: CGO_ENABLED=0 go build ./examples/agent
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/delegate-io/dlite/examples/internal/program"
	"github.com/delegate-io/dlite/examples/internal/storage"
	"github.com/delegate-io/dlite/internal/process"
)

func main() {
	if code, isInit := runAsInit(); isInit {
		os.Exit(code)
	}
	if err := process.ProtectMemory(); err != nil {
		fmt.Fprintln(os.Stderr, "agent: warning: a crash may write a core dump, with secrets:", err)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	program.Run(ctx, "agent", "Runs the steps of one stage for a driver elsewhere.",
		serveCommand(), bootCommand(), hubCommand(), stepCommand(), dialCommand(), installCommand(), storage.Command())
}
