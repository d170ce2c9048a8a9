package steps

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/delegate-io/dlite/task/stage"
)

const (
	readyTimeout  = time.Minute
	ReadyInterval = 200 * time.Millisecond
	// attemptTimeout bounds one attempt over the network. A command may take all
	// the time that there is, so that there is never more than one of it.
	attemptTimeout = 5 * time.Second
	// probeOutput is how much of a command's output is shown when it never
	// succeeded, in bytes.
	probeOutput = 4 << 10
)

var (
	// ErrEnded says that a background step was ended while it got ready.
	ErrEnded  = errors.New("the step was ended before it was ready")
	ErrClosed = errors.New("the driver is closed")
)

// probed is a background step as its readiness is tested.
type Probed interface {
	// address is where this process reaches its ports, empty where only a
	// command that runs beside it does.
	Address() string
	// run runs a command where the step runs.
	Run(ctx context.Context, argv []string) (code int, output string, err error)
	// ended says how the step has ended, or gives nil while it goes on.
	Ended(ctx context.Context) error
	// wake is closed when the step may have ended.
	Wake() <-chan struct{}
}

// checkReady rejects a readiness check that contradicts the step or itself.
func checkReady(step *stage.Step) error {
	rd := step.Ready
	if rd == nil {
		return nil
	}
	set := 0
	for _, is := range []bool{rd.Port != 0, rd.HTTP != "", len(rd.Command) > 0} {
		if is {
			set++
		}
	}
	switch {
	case !step.Detach:
		return errors.New("ready is for background steps, and detach is not set")
	case set != 1:
		return fmt.Errorf("ready: exactly one of port, http and command must be set, not %d of them", set)
	case rd.Port < 0 || rd.Port > 65535:
		return fmt.Errorf("ready: port %d does not exist", rd.Port)
	case rd.Timeout < 0 || rd.IntervalMillis < 0:
		return errors.New("ready: timeout and interval_ms must not be negative")
	}
	if rd.HTTP != "" {
		u, err := url.Parse(rd.HTTP)
		if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() != "localhost" && u.Hostname() != Loopback {
			return errors.New(`ready: http must be a URL like "http://localhost:8080/health", with localhost for the step itself`)
		}
	}
	return nil
}

// AwaitReady returns when the step can be used. The caller stops the step when
// it gets an error.
func (r *Run) AwaitReady(ctx context.Context, p Probed) error {
	rd := r.Step.Ready
	if rd == nil {
		return nil
	}
	timeout, interval := time.Duration(rd.Timeout)*time.Second, time.Duration(rd.IntervalMillis)*time.Millisecond
	if timeout == 0 {
		timeout = readyTimeout
	}
	if interval == 0 {
		interval = ReadyInterval
	}
	limited, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	probe := newProbe(rd, p)
	tick := time.NewTicker(interval)
	defer tick.Stop()
	wake := p.Wake()
	var last error
	said := ""
	for {
		output, err := probe(limited)
		// Whoever answers may be somebody else when the step is gone.
		if end := p.Ended(limited); end != nil && limited.Err() == nil {
			return end
		}
		if err == nil {
			return nil
		}
		// That our own time was over says less than what came before.
		if last == nil || limited.Err() == nil && !os.IsTimeout(err) {
			last = err
		}
		if output != "" {
			said = output
		}
		select {
		case <-wake:
			wake = nil // it may go on in the background
			if end := p.Ended(limited); end != nil && limited.Err() == nil {
				return end
			}
		case <-tick.C:
		case <-limited.Done():
		}
		if ctx.Err() != nil {
			return Stopped(ctx)
		}
		if limited.Err() != nil {
			if said != "" {
				r.Out.Printf("The last readiness check printed:\n%s", strings.TrimSuffix(cut(r.maskText(said), probeOutput), "\n"))
			}
			return fmt.Errorf("the step was not ready within %v (%v): %w", timeout, last.Error(), context.DeadlineExceeded)
		}
	}
}

// newProbe gives what one attempt is. It also gives the output of a command.
func newProbe(rd *stage.Ready, p Probed) func(context.Context) (string, error) {
	run := func(argv []string) func(context.Context) (string, error) {
		return func(ctx context.Context) (string, error) {
			code, output, err := p.Run(ctx, argv)
			if err == nil && code != 0 {
				err = fmt.Errorf("the check exited with %d", code)
			}
			return output, err
		}
	}
	address := p.Address()
	switch {
	case len(rd.Command) > 0:
		return run(rd.Command)
	case address == "" && rd.Port != 0:
		return run([]string{"sh", "-c", portScript, "sh", fmt.Sprintf("%04X", rd.Port)})
	case address == "":
		return run([]string{"sh", "-c", httpScript, "sh", rd.HTTP})
	case rd.Port != 0:
		return probePort(address, rd.Port)
	}
	return probeHTTP(address, rd.HTTP)
}

const (
	// portScript needs no tool but a shell: state 0A is a port that is listened
	// on. The port is given in hexadecimal.
	portScript = `for f in /proc/net/tcp /proc/net/tcp6; do
[ -r $f ] && while read -r _ local _ state _; do case "$local $state" in *":$1 0A") exit 0;; esac; done < $f
done; exit 1`
	// httpScript takes what the image has; 127 says that it has none of it.
	httpScript = `t=; if command -v timeout >/dev/null; then t='timeout 5'; fi
if command -v curl >/dev/null; then exec $t curl -fsSk -o /dev/null -- "$1"; fi
k=; case $1 in https:*) k=--no-check-certificate;; esac
if command -v wget >/dev/null; then exec $t wget -q $k -O /dev/null -- "$1"; fi
echo 'the image has neither curl nor wget to try the URL with' >&2; exit 127`
)

func probePort(address string, port int) func(context.Context) (string, error) {
	target := net.JoinHostPort(address, strconv.Itoa(port))
	return func(ctx context.Context) (string, error) {
		dialer := net.Dialer{Timeout: attemptTimeout}
		conn, err := dialer.DialContext(ctx, "tcp", target)
		if err != nil {
			return "", err
		}
		_ = conn.Close()
		return "", nil
	}
}

func probeHTTP(address, target string) func(context.Context) (string, error) {
	dialer := net.Dialer{}
	c := &http.Client{
		Timeout:       attemptTimeout,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		// No proxy: it would look for localhost on itself.
		Transport: &http.Transport{
			DisableKeepAlives: true,
			DialContext: func(ctx context.Context, network, target string) (net.Conn, error) {
				_, port, err := net.SplitHostPort(target)
				if err != nil {
					return nil, err
				}
				return dialer.DialContext(ctx, network, net.JoinHostPort(address, port))
			},
			// A step's certificate is seldom one for localhost, and nothing is
			// entrusted to it.
			TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, //nolint:gosec // see above
		},
	}
	return func(ctx context.Context) (string, error) {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, target, http.NoBody)
		if err != nil {
			return "", err
		}
		resp, err := c.Do(req)
		if err != nil {
			return "", withoutURL(err)
		}
		_ = resp.Body.Close()
		if resp.StatusCode >= http.StatusBadRequest {
			return "", fmt.Errorf("HTTP status %d", resp.StatusCode)
		}
		return "", nil
	}
}

// withoutURL keeps a URL, which may hold credentials, out of an error.
func withoutURL(err error) error {
	var withURL *url.Error
	if errors.As(err, &withURL) {
		return withURL.Err
	}
	return err
}

// LimitedOutput keeps the beginning of what is written to it.
type LimitedOutput struct {
	b    []byte
	torn bool
}

// probeRead is how much of a command's output is kept, in bytes: so much more
// than is shown that a secret in what is shown is there as a whole.
const probeRead = 64 << 10

// Write never fails.
func (l *LimitedOutput) Write(p []byte) (int, error) {
	room := probeRead - len(l.b)
	l.torn = l.torn || len(p) > room
	l.b = append(l.b, p[:min(len(p), room)]...)
	return len(p), nil
}

// String is what was written, as far as lines are whole.
func (l *LimitedOutput) String() string {
	if l.torn {
		return string(l.b[:bytes.LastIndexByte(l.b, '\n')+1])
	}
	return string(l.b)
}

func EndedError(code int, oom bool) error {
	why := ""
	if oom {
		why = ", out of memory,"
	}
	return fmt.Errorf("the step ended with exit code %d%s before it was ready; its output has the reason", code, why)
}
