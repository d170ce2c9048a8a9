package host

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// The log shows the end of each phase of git's progress, however the output is split into writes.
func TestGitsProgressIsSummarized(t *testing.T) {
	t.Parallel()
	text := "remote: Enumerating objects: 9, done.\x1b[K\nremote: Counting objects:  50% (1/2)\x1b[K\rremote: Counting objects: 100% (2/2), done.\x1b[K\n" +
		"Receiving objects:   1% (1/90)\rReceiving objects:  50% (45/90), 1.00 MiB | 2.00 MiB/s\rReceiving objects: 100% (90/90), 2 MiB | 3 MiB/s, done.\n" +
		"From http://example.invalid/x\n * [new branch]      main -> origin/main\nerror: half a li"
	want := "remote: Enumerating objects: 9, done.\nremote: Counting objects: 100% (2/2), done.\nReceiving objects: 100% (90/90), 2 MiB | 3 MiB/s, done.\n" +
		"From http://example.invalid/x\n * [new branch]      main -> origin/main\nerror: half a li\n"
	for _, size := range []int{1, 7, len(text)} {
		var log bytes.Buffer
		out := &gitOutput{to: &log}
		for rest := text; rest != ""; {
			n := min(size, len(rest))
			_, _ = out.Write([]byte(rest[:n]))
			rest = rest[n:]
		}
		out.flush()
		require.Equal(t, want, log.String())
		require.Equal(t, "half a li", out.reason())
	}
}

func TestLongPhasesOfGitPrintLines(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	out := &gitOutput{to: &log}
	_, _ = out.Write([]byte("Receiving objects:   1% (1/90)\r"))
	out.next = time.Now().Add(-time.Second)
	_, _ = out.Write([]byte("Receiving objects:   2% (2/90)\rReceiving objects:   3% (3/90)\r"))
	require.Equal(t, "Receiving objects:   2% (2/90)\n", log.String())
}

func TestGitsOutputIsKeptWithinBounds(t *testing.T) {
	t.Parallel()
	out := &gitOutput{}
	_, _ = out.Write([]byte(strings.Repeat("x", 1<<20) + strings.Repeat("\nline", 1000)))
	out.flush()
	require.Len(t, out.kept, gitKeptLines)
	_, _ = out.Write([]byte(strings.Repeat("x", 1<<20)))
	require.LessOrEqual(t, cap(out.line), 2*gitLineLimit)
}

// Messages of git and of servers, and the reasons that they mean.
func TestReasonsOfGitFailures(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]gitFailure{
		"remote: Repository not found.\nfatal: repository 'https://x/y/' not found":                                       failedNotFound,
		"fatal: '/none' does not appear to be a git repository\nfatal: Could not read from remote repository.":            failedNotFound,
		"fatal: unable to access 'https://x/': The requested URL returned error: 403":                                     failedAuth,
		"fatal: could not read Username for 'https://x': terminal prompts disabled":                                       failedAuth,
		"remote: HTTP Basic: Access denied\nfatal: Authentication failed for 'https://x/'":                                failedAuth,
		"git@x: Permission denied (publickey).\nfatal: the remote end hung up unexpectedly":                               failedAuth,
		"Host key verification failed.\nfatal: Could not read from remote repository.":                                    failedHostKey,
		"fatal: couldn't find remote ref refs/heads/x":                                                                    failedNoRef,
		"fatal: remote error: upload-pack: not our ref abcd":                                                              failedUnadvertised,
		"error: Server does not allow request for unadvertised object abcd":                                               failedUnadvertised,
		"fatal: transport 'file' not allowed":                                                                             failedProtocol,
		"fatal: unable to access 'https://x/': Could not resolve host: x":                                                 failedNetwork,
		"error: RPC failed; curl 92 HTTP/2 stream 0 was not closed cleanly\nfatal: early EOF":                             failedNetwork,
		"fatal: unable to access 'https://x/': The requested URL returned error: 503":                                     failedNetwork,
		"fatal: unable to access 'http://x/': Failed to connect to x port 1 after 0 ms: Couldn't connect to server":       failedNetwork,
		"fatal: unable to access 'https://x/': Operation too slow. Less than 1 bytes/sec transferred the last 60 seconds": failedNetwork,
		"error: Your local changes to the following files would be overwritten":                                           failedOtherwise,
		"fatal: unable to access 'https://x/': server certificate verification failed. CAfile: none CRLfile: none":        failedOtherwise,
	} {
		out := &gitOutput{}
		_, _ = out.Write([]byte(text + "\n"))
		require.Equal(t, want, out.failure(), text)
	}
}

// Rule S3: a line that is cut shows no part of a word, which may be a password.
func TestAGitLineIsCutBetweenWords(t *testing.T) {
	t.Parallel()
	out := &gitOutput{}
	word := strings.Repeat("x", gitLineLimit-40)
	_, _ = out.Write([]byte("remote: see " + word + " https://me:" + strings.Repeat("visibly-fake", 10) + "@host\n"))
	_, _ = out.Write([]byte(strings.Repeat("y", 2*gitLineLimit) + "\nremote: short\n"))
	require.Equal(t, "remote: see "+word+" ...\n...\nremote: short", out.text())
}
