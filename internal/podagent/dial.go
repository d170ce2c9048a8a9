package podagent

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"syscall"
	"time"
)

// dialTime is how long to wait for a hub that has just been started.
const dialTime = 10 * time.Second

// Dial connects in and out with the hub's control socket until one side ends. The
// driver runs it by an exec in the hub's container.
func Dial(ctx context.Context, control string, in io.Reader, out io.Writer) error {
	conn, err := connect(ctx, control)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	ended := make(chan error, 2)
	go func() { // ends with the process: nothing can interrupt a read of standard input
		_, err := io.Copy(conn, in)
		ended <- err
	}()
	go func() {
		_, err := io.Copy(out, conn)
		ended <- err
	}()
	select {
	case err = <-ended:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// connect waits for whoever listens: containers of a pod start without regard to
// each other, and a socket's coming cannot be waited for.
func connect(ctx context.Context, socket string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, dialTime)
	defer cancel()
	for pause := 5 * time.Millisecond; ; pause = min(2*pause, 200*time.Millisecond) {
		conn, err := (&net.Dialer{}).DialContext(ctx, "unix", socket)
		if err == nil {
			return conn, nil
		}
		if !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, syscall.ECONNREFUSED) {
			return nil, fmt.Errorf("reach the hub: %w", err)
		}
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return nil, fmt.Errorf("reach the hub: %w", err)
		}
	}
}
