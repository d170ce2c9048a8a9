package connector

import (
	"bytes"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"unicode/utf8"
)

// pktLines returns lines in the form of Git's protocol, with the flush at the end.
func pktLines(lines ...string) string {
	var b strings.Builder
	for _, l := range lines {
		fmt.Fprintf(&b, "%04x%s", len(l)+4, l)
	}
	return b.String() + "0000"
}

// isHex reports whether a text has n lower-case hexadecimal digits.
func isHex(text string, n int) bool {
	return len(text) == n && strings.Trim(text, "0123456789abcdef") == ""
}

// The bytes of a Git server are read up to the flush and not further, and a count of refs comes only from lines that name
// one: the texts of lines are counted a second time here, without packets.
func FuzzAdvertisement(f *testing.F) {
	id := strings.Repeat("a", 40)
	f.Add([]byte(pktLines(id+" HEAD\x00side-band-64k\n", id+" refs/heads/main\n", id+" refs/tags/v1^{}\n")), id+" refs/heads/main")
	f.Add([]byte(pktLines("# service=git-upload-pack\n")+pktLines(id+" refs/heads/main\n")), "# service=git-upload-pack")
	f.Add([]byte(pktLines(strings.Repeat("0", 40)+" capabilities^{}\x00report-status\n")), strings.Repeat("0", 64)+" x\n"+id)
	f.Add([]byte("00040000fff0x"), "a\nb")
	f.Add([]byte("-0010003+00f"), "")
	f.Fuzz(func(t *testing.T, answer []byte, text string) {
		in := bytes.NewReader(answer)
		got, err := readAdvertisement(in)
		read := len(answer) - in.Len()
		if !bytes.HasPrefix(answer, got) || len(got) > read || err == nil && len(got) != read {
			t.Errorf("%d bytes of %d are kept", len(got), read)
		}
		if err == nil && len(got) < maxAnswer && !bytes.HasSuffix(got, []byte("0000")) {
			t.Errorf("it ends without the flush: %q", got)
		}
		if refs, ok := countRefs(got, ""); ok && err == nil && refs*46 > len(got) {
			t.Errorf("%d refs in %d bytes", refs, len(got))
		}

		lines := strings.Split(text, "\n")
		if len(text) > 1<<15 {
			return
		}
		want, valid := 0, true
		for _, l := range lines {
			object, rest, _ := strings.Cut(l, " ")
			switch {
			case strings.Contains(l, "capabilities^{}"), strings.HasSuffix(l, "^{}"):
			case (isHex(object, 40) || isHex(object, 64)) && rest != "" && !strings.ContainsAny(rest[:1], " \t\r\f\n"):
				want++
			default:
				valid = false
			}
		}
		refs, ok := countRefs([]byte(pktLines(lines...)), "")
		if ok != valid || ok && refs != want {
			t.Errorf("%q: %d refs, %t, but there are %d, %t", lines, refs, ok, want, valid)
		}
	})
}

// A registry chooses where the delegate sends its credentials. They stay encrypted, and no part of the challenge replaces
// them or the scope.
func FuzzChallenge(f *testing.F) {
	f.Add(`realm="https://auth.example/token",service="registry.example",scope="x"`, true)
	f.Add(`realm="http://user:visibly-fake@auth.example/token?scope=a&service=b#c", Service="d"`, false)
	f.Add(`realm="//auth.example"`, true)
	f.Add(`realm="https://:1/", error="invalid_token"`, true)
	f.Add(`REALM="https://[::1%25eth0]/%zz"`, true)
	f.Fuzz(func(t *testing.T, challenge string, encrypted bool) {
		scheme, scope := "http", "repository:app:pull"
		if encrypted {
			scheme = "https"
		}
		u, bad := tokenService(challenge, "the registry", scheme, scope)
		if (u == nil) == (bad == nil) {
			t.Fatal("neither an address nor a failure, or both")
		}
		if bad != nil {
			return
		}
		switch {
		case u.Scheme != "https" && (encrypted || u.Scheme != "http"):
			t.Errorf("the scheme is %q", u.Scheme)
		case u.Hostname() == "" || u.User != nil || u.Fragment != "":
			t.Errorf("the address is %q", u)
		case len(u.Query()["scope"]) != 1 || u.Query().Get("scope") != scope:
			t.Errorf("the scope is %q", u.Query()["scope"])
		}
		if again, err := url.Parse(u.String()); err != nil || again.Host != u.Host {
			t.Errorf("%q is not the address of %s: %v", u, u.Host, err)
		}
		if _, err := http.NewRequestWithContext(t.Context(), http.MethodGet, u.String(), nil); err != nil {
			t.Error(err)
		}
	})
}

// The message of a server becomes one printable line of bounded length, in whatever form it comes.
func FuzzServerMessage(f *testing.F) {
	f.Add(403, "application/json", `{"errors":[{"code":"DENIED","message":"no"}]}`, "", "")
	f.Add(500, "application/json", `{"error":{"message":"a\u0000\u202eb"},"message":7}`, "", "")
	f.Add(503, "text/xml", "<?xml?><Code>SlowDown</Code><Message>x</Code>", "30", "")
	f.Add(429, "text/plain", "\x1b[31mslow\r\ndown\xff", "Wed, 21 Oct 2099 07:28:00 GMT", "4070908800")
	f.Add(401, "text/html", "<html>", "-1", "99999999999999999999")
	f.Fuzz(func(t *testing.T, status int, kind, body, after, reset string) {
		a := &answer{status: status, header: http.Header{"Content-Type": {kind}, "Retry-After": {after}, "X-Ratelimit-Reset": {reset}}, body: []byte(body)}
		bad := explainStatus(a, subject{server: "the server"})
		if (status < 300) != (bad == nil) {
			t.Fatalf("%d: %v", status, bad)
		}
		if bad == nil {
			return
		}
		if bad.step == "" || bad.remedy == "" || len(bad.message) > maxMessage {
			t.Errorf("the step is %q, the remedy %q, the message has %d bytes", bad.step, bad.remedy, len(bad.message))
		}
		if !utf8.ValidString(bad.message) || oneLine(bad.message, maxMessage) != bad.message {
			t.Errorf("%q is not one line", bad.message)
		}
		for _, path := range [][]string{{}, {"token"}, {"a", "b"}} {
			_, _, _ = field(a.body, path...), number(a.body, path...), explainProxy("host", status)
			if value, known := flag(a.body, path...); value && !known {
				t.Error("a value that is not known")
			}
		}
	})
}
