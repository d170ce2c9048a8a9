package docker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/cenkalti/backoff/v5"
	"github.com/containerd/errdefs"
	"github.com/distribution/reference"
	"github.com/docker/docker/api/types/image"
	"github.com/docker/docker/client"

	"github.com/delegate-io/dlite/driver/local/internal/steps"
	"github.com/delegate-io/dlite/task/stage"
)

// pullTimes are the limits of a pull.
type pullTimes struct {
	attempts int
	pause    time.Duration // shortest pause before the second attempt; doubles with each
	line     time.Duration // between two lines of progress
	silence  time.Duration // time without progress that ends an attempt
}

var defaultPullTimes = pullTimes{attempts: 4, pause: time.Second, line: 5 * time.Second, silence: 5 * time.Minute}

// pauses returns the pauses between attempts. Each is up to a quarter longer than its bound, so that
// many steps do not retry at once.
func (t *pullTimes) pauses() *backoff.ExponentialBackOff {
	// The library randomises around the middle: 9/8 of the pause, plus or minus 1/8.
	return &backoff.ExponentialBackOff{
		InitialInterval: t.pause / 8 * 9, MaxInterval: time.Hour, Multiplier: 2, RandomizationFactor: 1.0 / 9,
	}
}

// errSilent ends an attempt without progress.
var errSilent = errors.New("the registry makes no progress")

// pull pulls the step's image and prints the progress. It repeats the attempt after a temporary error.
// With allowLocal, an image on this machine serves if the first attempt fails.
func (r *run) pull(ctx context.Context, cli client.APIClient, allowLocal bool) error {
	auth, err := r.registryAuth()
	if err != nil {
		return err
	}
	times := r.d.pullTimes
	lost := r.outage()
	r.Out.Printf("Pulling image %s", r.Step.Image)
	pauses := times.pauses()
	for attempt := 1; ; attempt++ {
		err := r.pullOnce(ctx, cli, auth)
		if err == nil || ctx.Err() != nil {
			return err
		}
		if allowLocal {
			if _, inspectErr := cli.ImageInspect(ctx, r.Step.Image); inspectErr == nil {
				r.Out.Printf("Using the local image, because the pull failed: %v", err)
				return nil
			}
		}
		if attempt >= times.attempts || isFinalPull(err, r.Step.Image) {
			return err
		}
		if isAway(err) && !lost.await(ctx, cli) {
			return err
		}
		wait := pauses.NextBackOff()
		r.Out.Printf("Pulling image %s again in %v, attempt %d of %d, because it failed: %v",
			r.Step.Image, wait.Round(time.Millisecond), attempt+1, times.attempts, err)
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return err
		}
	}
}

// pullError is the error of a failed pull, or of an image that is missing and must not be pulled.
type pullError struct{ error }

func (e *pullError) Unwrap() error { return e.error }

// FailureKind returns the kind of the failure for the answer to the manager.
func (e *pullError) FailureKind() string {
	if isAway(e.error) {
		return stage.FailureConnectivity // to the engine
	}
	return stage.FailureImage
}

// pullOnce makes one attempt. The stream of the engine has no time-out, so a time without
// progress ends it.
func (r *run) pullOnce(ctx context.Context, cli client.APIClient, auth string) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	silence := r.d.pullTimes.silence
	watch := time.AfterFunc(silence, func() { cancel(fmt.Errorf("%w for %v", errSilent, silence)) })
	defer watch.Stop()

	fail := func(err error) error {
		if cause := context.Cause(ctx); errors.Is(cause, errSilent) {
			err = cause
		}
		return &pullError{fmt.Errorf("pull image %s: %w", r.Step.Image, explainEngine(cli, err))}
	}
	body, err := cli.ImagePull(ctx, r.Step.Image, image.PullOptions{RegistryAuth: auth})
	if err != nil {
		return fail(err)
	}
	defer func() { _ = body.Close() }()
	p := pullProgress{image: r.Step.Image, out: r.Out, every: r.d.pullTimes.line, last: time.Now()}
	status, err := readPull(body, func(m *pullMessage) {
		watch.Reset(silence)
		p.add(m)
	})
	if err != nil {
		return fail(err)
	}
	if status != "" {
		r.Out.Printf("%s", status)
	}
	return nil
}

// pullMessage is one line of a pull's progress.
type pullMessage struct {
	ID       string `json:"id"`
	Status   string `json:"status"`
	Error    string `json:"error"`
	Progress struct {
		Current int64 `json:"current"`
		Total   int64 `json:"total"`
	} `json:"progressDetail"`
	Detail struct {
		Message string `json:"message"`
	} `json:"errorDetail"`
}

// readPull reads the progress to its end and returns the last status. The engine reports errors as
// messages, because it has already sent the HTTP status.
func readPull(body io.Reader, progress func(*pullMessage)) (string, error) {
	var status string
	dec := json.NewDecoder(body)
	for {
		var m pullMessage
		err := dec.Decode(&m)
		switch {
		case errors.Is(err, io.EOF):
			return status, nil
		case err != nil:
			return status, fmt.Errorf("read progress: %w", err)
		case m.Detail.Message != "":
			return status, errors.New(m.Detail.Message)
		case m.Error != "":
			return status, errors.New(m.Error)
		case m.ID == "" && m.Status != "":
			status = m.Status // of the image; a message with an id is about one layer
		}
		progress(&m)
	}
}

// pullProgress prints the progress of a pull from time to time.
type pullProgress struct {
	image  string
	out    *steps.Output
	every  time.Duration
	last   time.Time
	layers map[string]*pullLayer
}

type pullLayer struct {
	current, total int64 // bytes to download, as far as known
	done           bool
}

func (p *pullProgress) add(m *pullMessage) {
	l := p.layers[m.ID]
	if l == nil {
		if m.Status != "Pulling fs layer" && m.Status != "Already exists" {
			return // not a message about a layer
		}
		if p.layers == nil {
			p.layers = map[string]*pullLayer{}
		}
		l = &pullLayer{}
		p.layers[m.ID] = l
	}
	switch m.Status {
	case "Downloading":
		l.current, l.total = m.Progress.Current, m.Progress.Total
	case "Download complete":
		l.current = l.total
	case "Pull complete", "Already exists":
		l.current, l.done = l.total, true
	}
	if now := time.Now(); now.Sub(p.last) >= p.every {
		p.last = now
		p.print()
	}
}

func (p *pullProgress) print() {
	var done int
	var current, total int64
	for _, l := range p.layers {
		current, total = current+l.current, total+l.total
		if l.done {
			done++
		}
	}
	const mega = 1e6
	p.out.Printf("Pulling image %s: %d of %d layers, %.1f of %.1f MB", p.image, done, len(p.layers), float64(current)/mega, float64(total)/mega)
}

// Words that classify errors which the engine reports as internal errors. The temporary ones are
// tested first, because the error page of a proxy may contain any word.
var (
	transientPull = []string{
		"connection refused", "connection reset", "timeout", "timed out", "eof", "broken pipe", "unexpected http status: 5",
		"toomanyrequests", "service unavailable", "bad gateway", "temporary failure", "network is unreachable", "no route to host",
	}
	finalPull = []string{
		"unauthorized", "authentication required", "denied", "no basic auth credentials", "incorrect username or password",
		"manifest unknown", "name unknown", "name invalid", "not found", "no matching manifest", "no such image", "does not exist",
		"unsupported", "no space left on device", "invalid reference format", "http response to https client", "x509:", "certificate",
	}
)

// isFinalPull reports whether another attempt to pull ref would fail in the same way. An unknown error
// is worth another attempt.
func isFinalPull(err error, ref string) bool {
	switch {
	case errdefs.IsNotFound(err), errdefs.IsUnauthorized(err), errdefs.IsPermissionDenied(err), errdefs.IsInvalidArgument(err):
		return true
	case isAway(err), errors.Is(err, errSilent):
		return false
	}
	text := strings.ToLower(err.Error())
	// The name of an image may contain any word.
	text = strings.ReplaceAll(text, strings.ToLower(ref), "")
	if named, err := reference.ParseNormalizedNamed(ref); err == nil {
		text = strings.ReplaceAll(text, strings.ToLower(reference.Path(named)), "")
	}
	for _, word := range transientPull {
		if strings.Contains(text, word) {
			return false
		}
	}
	for _, word := range finalPull {
		if strings.Contains(text, word) {
			return true
		}
	}
	return false
}
