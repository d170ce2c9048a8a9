package transaction

import (
	"context"
	"fmt"
	"net/url"
	"strings"

	"github.com/delegate-io/dlite/logger"
	"github.com/delegate-io/dlite/secrets"
	"github.com/delegate-io/dlite/task"
	"github.com/delegate-io/dlite/task/stage"
)

// initLog returns the masked log of an init. It opens when it is first written to:
// most inits write nothing, and its key may belong to a step of the manager.
func (t *transaction) initLog(ctx context.Context, req *task.Request[stage.InitRequest]) *maskedLog {
	log := &lazyLog{open: func() logger.TaskLog { return t.stages.openTaskLog(ctx, req.Data.LogConfig, req.Data.LogKey) }}
	return &maskedLog{Masker: secrets.NewMasker(log, t.secrets), log: log}
}

// endInit writes the reason of a failure to the log of the init and closes it.
// Neither the log nor the credentials of the clone are available to steps.
func (t *transaction) endInit(ctx context.Context, log *maskedLog, err error) {
	t.env.Log, t.env.Clone = nil, nil
	if err != nil {
		_, _ = fmt.Fprintf(log, "%v\n", err)
	}
	t.endLog(ctx, log, "", "")
}

// lazyLog is a log that opens when it is first written to.
type lazyLog struct {
	open func() logger.TaskLog
	log  logger.TaskLog // nil until then
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

// cloneSecrets returns the credentials of a clone: the password, and the password
// or token in the URL, as it is and unescaped. A name without a password is a
// token.
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
	// Without url.Parse: a malformed URL may hold a password too.
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

// maskTests masks the texts that a summary quotes from test reports.
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
