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

	"github.com/delegate-io/dlite/driver/agent"
)

// port is the agent's end of what agent.PortReady describes, or a plain file that
// has the boot already and is told nothing.
type port struct {
	file  *os.File
	plain bool
	once  sync.Once
}

const (
	// maxLine bounds what the agent is told, in bytes.
	maxLine = 1 << 20
	// portPause is how long a port is left alone that nobody is connected to: it says
	// that it has ended, and there is no signal for the change.
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

// say tells the host something, who may not be there any more.
func (p *port) say(words ...string) error {
	if p.plain {
		return nil
	}
	_, err := io.WriteString(p.file, strings.Join(words, " ")+"\n")
	return err
}

// booted ends the conversation: the agent serves.
func (p *port) booted() error {
	defer p.close()
	return p.say(agent.PortBooted)
}

// failed says why there will be no agent.
func (p *port) failed(err error) {
	if err != nil {
		// After booted the port is closed and this goes nowhere.
		_ = p.say(agent.PortFailed, strings.ReplaceAll(err.Error(), "\n", " "))
	}
}

// boot says that the agent waits, at first and whenever it is asked, and returns
// the line that it gets then.
func (p *port) boot(ctx context.Context) ([]byte, error) {
	// A read that waits ends with the port.
	defer context.AfterFunc(ctx, p.close)()
	if err := p.say(agent.PortReady); err != nil {
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
			if err := p.say(agent.PortReady); err != nil {
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
