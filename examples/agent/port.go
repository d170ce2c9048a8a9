package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/delegate-io/dlite/internal/bootport"
)

// port is the agent's end of the port that bootport.Ready describes, or a plain file
// that holds the settings already. Nothing is written to a plain file.
type port struct {
	file  *os.File
	plain bool
	once  sync.Once
}

const (
	// maxLine bounds the line with the settings, in bytes.
	maxLine = 1 << 20
	// portPause is the time between two reads of a port without a peer. Such a port
	// reports its end at once, and no signal reports a new peer.
	portPause = 20 * time.Millisecond
)

func openPort(path string) (*port, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if info.Mode().IsRegular() {
		f, err := os.Open(path)
		return &port{file: f, plain: true}, err
	}
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	if err := makeRaw(f); err != nil {
		_ = f.Close()
		return nil, err
	}
	return &port{file: f}, nil
}

func (p *port) close() { p.once.Do(func() { _ = p.file.Close() }) }

// write sends a line to the host. The host may have closed the port.
func (p *port) write(words ...string) error {
	if p.plain {
		return nil
	}
	_, err := io.WriteString(p.file, strings.Join(words, " ")+"\n")
	return err
}

// booted reports that the agent serves, and closes the port.
func (p *port) booted() error {
	defer p.close()
	return p.write(bootport.Booted)
}

// failed reports why the agent does not serve.
func (p *port) failed(err error) {
	if err != nil {
		// After booted the port is closed, and this has no effect.
		_ = p.write(bootport.Failed, strings.ReplaceAll(err.Error(), "\n", " "))
	}
}

// boot reports that the agent is ready, at first and for each empty line, and returns
// the first line that is not empty.
func (p *port) boot(ctx context.Context) ([]byte, error) {
	// Closing the port ends a read that waits.
	defer context.AfterFunc(ctx, p.close)()
	if err := p.write(bootport.Ready); err != nil {
		return nil, err
	}
	var line []byte
	buf := make([]byte, 4096)
	for {
		n, err := p.file.Read(buf)
		line = append(line, buf[:n]...)
		for end := bytes.IndexByte(line, '\n'); end >= 0; end = bytes.IndexByte(line, '\n') {
			if end > 0 {
				return line[:end], nil
			}
			line = line[1:]
			if err := p.write(bootport.Ready); err != nil {
				return nil, err
			}
		}
		switch {
		case ctx.Err() != nil:
			return nil, ctx.Err()
		case len(line) > maxLine:
			return nil, errors.New("the line is too long")
		case p.plain && errors.Is(err, io.EOF):
			return line, nil
		case errors.Is(err, io.EOF):
			select {
			case <-time.After(portPause):
			case <-ctx.Done():
			}
		case err != nil && !errors.Is(err, fs.ErrClosed):
			return nil, fmt.Errorf("read: %w", err)
		}
	}
}
