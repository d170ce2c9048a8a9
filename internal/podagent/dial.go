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

// dialTime limits the wait for a hub that is starting.
const dialTime = 10 * time.Second

// Dial copies between in, out and the control socket of the hub until one side ends. The
// driver runs it by an exec in the container of the hub.
func Dial(ctx context.Context, control string, in io.Reader, out io.Writer) error {
	conn, err := connect(ctx, control)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	ended := make(chan error, 2)
	go func() { // ends with the process: a read of standard input cannot be interrupted
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

// connect dials the socket until it answers, because the containers of a pod start in any
// order.
func connect(ctx context.Context, socket string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, dialTime)
	defer cancel()
	for pause := 5 * time.Millisecond; ; pause = min(2*pause, 200*time.Millisecond) {
		conn, err := (&net.Dialer{}).DialContext(ctx, "unix", socket)
		if err == nil {
			return conn, nil
		}
		if !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, syscall.ECONNREFUSED) {
			return nil, fmt.Errorf("connect to the hub: %w", err)
		}
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return nil, fmt.Errorf("connect to the hub: %w", err)
		}
	}
}
