package steps

import (
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
	readyTimeout = time.Minute
	// ReadyInterval is the time between two attempts of a readiness check.
	ReadyInterval = 200 * time.Millisecond
	// attemptTimeout limits one attempt over the network. A command has no such limit, so that only
	// one command runs at a time.
	attemptTimeout = 5 * time.Second
	// probeOutput limits how many bytes of a command's output are printed if it never succeeds.
	probeOutput = 4 << 10
)

var (
	// ErrEnded is the error of a background step that was ended before it was ready.
	ErrEnded = errors.New("the step was ended before it was ready")
	// ErrClosed is the error of a call to a driver that was closed.
	ErrClosed = errors.New("the driver is closed")
)

// Probed is a background step whose readiness is checked.
type Probed interface {
	// Address returns the address of the step's ports. It is empty if only a command beside the step
	// reaches them.
	Address() string
	// Run runs a command where the step runs.
	Run(ctx context.Context, argv []string) (code int, output string, err error)
	// Ended returns an error that describes how the step ended, or nil while it runs.
	Ended(ctx context.Context) error
	// Wake returns a channel that is closed when the step may have ended.
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
		return errors.New("ready works only for background steps: set detach")
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

// AwaitReady returns when the step is ready. After an error the caller stops the step.
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
	printed := ""
	for {
		output, err := probe(limited)
		// After the end of the step, another process may have answered.
		if end := p.Ended(limited); end != nil && limited.Err() == nil {
			return end
		}
		if err == nil {
			return nil
		}
		// An error before the time-out has more information than the time-out.
		if last == nil || limited.Err() == nil && !os.IsTimeout(err) {
			last = err
		}
		// The last line of a check that the time-out ended may stop within a secret, which masking would
		// not recognize.
		if limited.Err() != nil {
			output = output[:strings.LastIndexByte(output, '\n')+1]
		}
		if output != "" {
			printed = output
		}
		select {
		case <-wake:
			wake = nil // the step may continue in the background
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
			if printed != "" {
				r.Out.Printf("The last readiness check printed:\n%s", strings.TrimSuffix(cut(r.maskText(printed), probeOutput), "\n"))
			}
			return fmt.Errorf("the step was not ready within %v (%v): %w", timeout, last.Error(), context.DeadlineExceeded)
		}
	}
}

// newProbe returns a function that makes one attempt and returns the output of its command.
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
	// portScript needs only a shell. State 0A means that a process listens on the port. The argument
	// is the port in hexadecimal.
	portScript = `for f in /proc/net/tcp /proc/net/tcp6; do
[ -r $f ] && while read -r _ local _ state _; do case "$local $state" in *":$1 0A") exit 0;; esac; done < $f
done; exit 1`
	// httpScript uses curl or wget of the image. It exits with 127 if the image has neither.
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
		// No proxy: a proxy would resolve localhost to itself.
		Transport: &http.Transport{
			DisableKeepAlives: true,
			DialContext: func(ctx context.Context, network, target string) (net.Conn, error) {
				_, port, err := net.SplitHostPort(target)
				if err != nil {
					return nil, err
				}
				return dialer.DialContext(ctx, network, net.JoinHostPort(address, port))
			},
			// The certificate of a step is rarely valid for localhost, and the request contains no
			// secrets.
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

// withoutURL removes the URL, which may hold credentials, from an error.
func withoutURL(err error) error {
	var withURL *url.Error
	if errors.As(err, &withURL) {
		return withURL.Err
	}
	return err
}

// EndedError returns the error of a background step that ended before it was ready.
func EndedError(code int, oom bool) error {
	why := ""
	if oom {
		why = ", out of memory,"
	}
	return fmt.Errorf("the step ended with exit code %d%s before it was ready; its output has the reason", code, why)
}
