package transaction

import (
	"context"
	"fmt"
	"net/url"
	"strings"

	"github.com/delegate-io/dlite/secrets"
	"github.com/delegate-io/dlite/task"
	"github.com/delegate-io/dlite/task/stage"
)

// initLog is what an init has to say to people, masked. Its log is opened by
// the first word: most inits have nothing to say, and the key may be that of a
// step that the manager writes to itself.
func (t *transaction) initLog(ctx context.Context, req *task.Request[stage.InitRequest]) *maskedLog {
	log := &lazyLog{open: func() Log { return t.stages.openTaskLog(ctx, req.Data.LogConfig, req.Data.LogKey) }}
	return &maskedLog{Masker: secrets.NewMasker(log, t.secrets), log: log}
}

// endInit writes why an init failed where people look first, and closes its
// log. Neither the log nor the clone's credentials are kept for the steps.
func (t *transaction) endInit(ctx context.Context, log *maskedLog, err error) {
	t.env.Log, t.env.Clone = nil, nil
	if err != nil {
		_, _ = fmt.Fprintf(log, "%v\n", err)
	}
	t.endLog(ctx, log, "")
}

// lazyLog opens its log when it is first written to.
type lazyLog struct {
	open func() Log
	log  Log // nil until then
}

func (l *lazyLog) Write(b []byte) (int, error) {
	if l.log == nil {
		l.log = l.open()
	}
	return l.log.Write(b)
}

func (l *lazyLog) Close(ctx context.Context) error {
	if l.log == nil {
		return nil
	}
	return l.log.Close(ctx)
}

// cloneSecrets are the credentials of a clone, which no output may show: the
// password, and what stands in the URL in its place, as it is and unescaped. A
// name without a password is a token.
func cloneSecrets(c *stage.Clone) []string {
	if c == nil {
		return nil
	}
	var list []string
	add := func(s string) {
		list = append(list, s)
		if plain, err := url.PathUnescape(s); err == nil && plain != s {
			list = append(list, plain)
		}
	}
	if c.Auth != nil {
		list = append(list, c.Auth.Password)
	}
	// By hand: a malformed URL may hold a password too.
	scheme, rest, ok := strings.Cut(c.URL, "://")
	if !ok || !strings.HasPrefix(strings.ToLower(scheme), "http") {
		return list
	}
	authority, _, _ := strings.Cut(rest, "/")
	at := strings.LastIndexByte(authority, '@')
	if at < 0 {
		return list
	}
	name, password, _ := strings.Cut(authority[:at], ":")
	switch {
	case password != "":
		add(password)
	case c.Auth == nil:
		add(name)
	}
	return list
}

// maskTests masks what a summary quotes of a step's test reports.
func (t *transaction) maskTests(s *stage.TestSummary) *stage.TestSummary {
	if s == nil {
		return nil
	}
	masked := *s
	masked.Failures, masked.Problems = nil, nil
	for _, f := range s.Failures {
		masked.Failures = append(masked.Failures, stage.TestFailure{
			Suite: t.secrets.Mask(f.Suite), Class: t.secrets.Mask(f.Class),
			Name: t.secrets.Mask(f.Name), Message: t.secrets.Mask(f.Message),
		})
	}
	for _, p := range s.Problems {
		masked.Problems = append(masked.Problems, t.secrets.Mask(p))
	}
	return &masked
}
