package host

import (
	"bytes"
	"io"
	"regexp"
	"strings"
	"time"
)

// gitOutput keeps the last lines that git prints, for the error, and passes on
// what people want to read: of its progress only how each phase ended, and a
// sign of life every now and then. It is used by one goroutine at a time.
type gitOutput struct {
	to   io.Writer // nil keeps only
	line []byte
	long bool // the line goes on
	kept []string
	next time.Time
}

const (
	gitLineLimit = 4 << 10
	gitKeptLines = 100
	gitLifeSigns = 10 * time.Second
)

var gitProgress = regexp.MustCompile(`^(remote: )?[A-Z][A-Za-z ]+: +[0-9]+(% \([0-9]+/[0-9]+\)|\s*$|,)`)

func (o *gitOutput) Write(b []byte) (int, error) {
	for rest := b; len(rest) > 0; {
		i := bytes.IndexAny(rest, "\r\n")
		if i < 0 {
			o.add(rest)
			break
		}
		o.add(rest[:i])
		o.flush()
		rest = rest[i+1:]
	}
	return len(b), nil
}

func (o *gitOutput) add(b []byte) {
	n := min(len(b), gitLineLimit-len(o.line))
	o.line, o.long = append(o.line, b[:n]...), o.long || n < len(b)
}

// cut ends a line that is too long before its last word: half a password, which
// nothing after this would recognise, is never left (SPEC S3).
func (o *gitOutput) cut() {
	if o.long {
		o.line = append(o.line[:bytes.LastIndexAny(o.line, " \t")+1], "..."...)
		o.long = false
	}
}

// flush ends the line.
func (o *gitOutput) flush() {
	o.cut()
	// The remote's lines are padded and cleared to their end.
	line := strings.TrimRight(strings.ReplaceAll(string(o.line), "\x1b[K", ""), " \t")
	o.line = o.line[:0]
	if line == "" {
		return
	}
	if gitProgress.MatchString(line) {
		if now := time.Now(); strings.Contains(line, ", done.") {
			o.next = now.Add(gitLifeSigns)
			o.pass(line)
		} else if o.next.IsZero() {
			o.next = now.Add(gitLifeSigns)
		} else if now.After(o.next) {
			o.next = now.Add(gitLifeSigns)
			o.pass(line)
		}
		return
	}
	if len(o.kept) == gitKeptLines {
		o.kept = o.kept[1:]
	}
	o.kept = append(o.kept, line)
	o.pass(line)
}

func (o *gitOutput) pass(line string) {
	if o.to != nil {
		_, _ = io.WriteString(o.to, line+"\n") // a log that fails fails no clone
	}
}

func (o *gitOutput) text() string { return strings.Join(o.kept, "\n") }

// gitFailure is why git failed, as far as its words tell.
type gitFailure int

const (
	failedOtherwise gitFailure = iota
	failedAuth
	failedHostKey
	failedNotFound
	failedNoRef
	failedUnadvertised // the server gives branches and tags alone
	failedProtocol
	failedNetwork // may go well the next time
)

// gitFailures is in order: the first that matches counts. What is final comes
// first, since the remote hangs up after that too.
var gitFailures = []struct {
	failure gitFailure
	words   *regexp.Regexp
}{
	{failedUnadvertised, regexp.MustCompile(`(?i)not our ref|unadvertised object|did not send all necessary objects`)},
	{failedNoRef, regexp.MustCompile(`(?i)couldn't find remote ref|no such remote ref|remote ref .* not found`)},
	{failedHostKey, regexp.MustCompile(`(?i)host key verification failed`)},
	{failedProtocol, regexp.MustCompile(`(?i)transport '[^']*' not allowed`)},
	{failedAuth, regexp.MustCompile(`(?i)authentication failed|could not read (username|password)|terminal prompts disabled|permission denied|returned error: 40[137]`)},
	{failedNotFound, regexp.MustCompile(`(?i)repository (\S+ )?not found|does not appear to be a git repository|does not exist|repository '[^']*' not found|returned error: 4(04|10)`)},
	{failedNetwork, regexp.MustCompile(`(?i)could not resolve host|couldn't connect|failed to connect|connection (refused|reset|timed out|was reset|closed)|` +
		`operation (timed out|too slow)|timed out|network is unreachable|no route to host|temporary failure|` +
		`returned error: (429|5\d\d)|http (429|5\d\d)|early eof|rpc failed|empty reply|unexpected disconnect|` +
		`remote end hung up|gnutls recv error|ssl_error_syscall|transfer closed|curl (6|7|18|28|35|52|55|56|92) `)},
}

func (o *gitOutput) failure() gitFailure {
	text := o.text()
	for _, f := range gitFailures {
		if f.words.MatchString(text) {
			return f.failure
		}
	}
	return failedOtherwise
}

// reason is the line that says most.
func (o *gitOutput) reason() string {
	for _, prefix := range []string{"fatal: ", "error: ", "remote: ", ""} {
		for _, line := range o.kept {
			if after, ok := strings.CutPrefix(line, prefix); ok && after != "" {
				return after
			}
		}
	}
	return "git says nothing"
}
