package host

import (
	"bytes"
	"io"
	"regexp"
	"strings"
	"time"
)

// gitOutput keeps the last lines of git's output for the error, and copies the useful lines to the
// log. From the progress it copies only the end of each phase, and a line every gitLifeSigns. It is
// not safe for concurrent use.
type gitOutput struct {
	to   io.Writer // nil copies nothing
	line []byte
	long bool // the line was cut off
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

// cut cuts a line that is too long before its last word. A part of a password must not remain, because
// no mask recognizes it (rule S3).
func (o *gitOutput) cut() {
	if o.long {
		o.line = append(o.line[:bytes.LastIndexAny(o.line, " \t")+1], "..."...)
		o.long = false
	}
}

// flush ends the line.
func (o *gitOutput) flush() {
	o.cut()
	// The lines of the remote end with blanks and an escape sequence that clears the line.
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
		_, _ = io.WriteString(o.to, line+"\n") // an error of the log does not fail the clone
	}
}

func (o *gitOutput) text() string { return strings.Join(o.kept, "\n") }

// gitFailure is the reason of a failure that the output shows.
type gitFailure int

const (
	failedOtherwise gitFailure = iota
	failedAuth
	failedHostKey
	failedNotFound
	failedNoRef
	failedUnadvertised // the server offers only branches and tags
	failedProtocol
	failedNetwork // the next attempt may succeed
)

// gitFailures is in order: the first match counts. Permanent failures come first, because the remote
// closes the connection after them too.
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

// reason returns the most useful line of the output.
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
