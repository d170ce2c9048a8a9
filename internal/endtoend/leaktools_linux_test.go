package endtoend_test

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/secrets"
)

// shapes are the shapes of the secrets: each # stands for a letter or digit.
var shapes = map[string]string{
	"short":   "#######",
	"word":    "fake_####################",
	"long":    strings.Repeat("########.", 30),
	"quotes":  `##"###'######\####&##<####>###` + "`##$####%2f+/=##",
	"unicode": "####é####€########😀##########",
	"lines":   "##########\n################\n\n####\n##############",
	"key": "=====START MOCK BLOCK=====\n" + strings.Repeat("################################################################\n", 4) +
		"=====END MOCK BLOCK=====",
}

// inShape returns a secret.
func inShape(shape string, r *rand.Rand) string {
	const letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
	return strings.Map(func(c rune) rune {
		if c == '#' {
			return rune(letters[r.IntN(len(letters))])
		}
		return c
	}, shape)
}

// tool is a script that shows the secret in the variable S. It may send requests to the address
// in URL.
type tool struct{ name, script, needs string }

// tools show a secret in a way that the masker must find.
var tools = []tool{
	{"base64", `for n in 0 1 2 9 17 25 32 39 44 50 56; do printf "%${n}s%s and more" "" "$S" | base64; done`, "base64"},
	{"base64 -w0", `printf %s "$S" | base64 -w0; echo; printf 'user:%s' "$S" | base64 -w0`, "base64"},
	{"base64 -w64", `for n in 0 1 2 11 20 29 38 47; do printf "%${n}s%s and more" "" "$S" | base64 -w64; done`, "base64"},
	{"base64 of any width", `for n in 8 13 20 60 100; do printf 'text %s' "$S" | base64 -w$n; done`, "base64"},
	{"base64 for URLs", `printf 'text %s' "$S" | base64 | tr '+/' '-_'`, "base64"},
	{"base64 in YAML", `printf 'data:\n  key: |\n'; printf 'text %s' "$S" | base64 | sed 's/^/    /'`, "base64"},
	{"base64 with CRLF", `printf 'text %s' "$S" | base64 | sed 's/$/\r/'`, "base64"},
	{"xxd -p", `for n in 0 7 15 26; do printf "%${n}s%s and more" "" "$S" | xxd -p; done; printf %s "$S" | xxd -p -u -c 16`, "xxd"},
	{"od, joined", `printf %s "$S" | od -An -v -tx1 | tr -d ' \n'`, "od"},
	{"xxd", dumpsWith("xxd", "xxd -u", "xxd -g1", "xxd -g4", "xxd -g0", "xxd -e", "xxd -b", "xxd -i", "xxd -c 11", "xxd -c 32 -g 8"), "xxd"},
	{"od", dumpsWith("od", "od -v", "od -x", "od -An -tx1", "od -tx1z", "od -c", "od -An -c", "od -b", "od -Ax -tx4", "od -tx8 -An", "od -to4", "od -tx1 -c"), "od"},
	{"hexdump", dumpsWith("hexdump", "hexdump -C", "hexdump -c", "hexdump -b", "hexdump -o", "hexdump -x"), "hexdump"},
	{"dumps with CRLF", `printf 'text %s' "$S" | hexdump -C | sed 's/$/\r/'`, "hexdump"},
	{"openssl base64", `for n in 0 1 2 11 20 29 38 47; do printf "%${n}s%s and more" "" "$S" | openssl base64; done; printf %s "$S" | openssl enc -base64 -A`, "openssl"},
	{"openssl asn1parse", `printf %s "$S" > "$DIR/s"; printf 'asn1=FORMAT:HEX,OCTETSTRING:%s' "$(xxd -p "$DIR/s" | tr -d '\n')" > "$DIR/c"; openssl asn1parse -genconf "$DIR/c"`, "openssl"},
	{"jq", `for f in @text @json @uri @base64 @sh @html '[.]|@csv' '[.]|@tsv' tojson; do printf %s "$S" | jq -Rrs "$f"; done; printf %s "$S" | jq -Rs .`, "jq"},
	{"jq in ASCII", `printf %s "$S" | jq -aRs '{a: .}'`, "jq"},
	{"curl: header", `curl -sv -o /dev/null -H "X-Token: $S" "$URL" 2>&1 | tr -d '\r' | grep -i token; true`, "curl"},
	{"curl: user", `curl -sv -o /dev/null -u "user:$S" "$URL" 2>&1 | grep -i authorization; true`, "curl"},
	{"curl: URL", `curl -sv -G --data-urlencode "t=$S" "$URL" 2>&1 | grep -v '^[*]\|Date'; true`, "curl"},
	{"curl: form", `curl -s --data-urlencode "t=$S" "$URL"`, "curl"},
	{"python", `python3 -c "$PYTHON"`, "python3"},
	{"git: URL", `e=$(printf %s "$S" | jq -Rsr @uri); git clone "http://ci:$e@${URL#http://}/none.git" "$DIR/none" 2>&1; true`, "git"},
	{"git: configuration", `git config -f "$DIR/config" a.b "$S"; cat "$DIR/config"`, "git"},
	{"shells", `bash -xc ': "$S"' 2>&1; dash -xc ': "$S"' 2>&1; bash -c 'printf "%q\n" "$S"; declare -p S; echo "${S@Q}"'`, "bash"},
	{"env", `env -i S="$S" "$(command -v env)"; cat /proc/self/environ | tr '\0' '\n' | grep -A9 '^S='`, "env"},
	{"fold", `printf %s "$S" | fold -w 20`, "fold"},
	{"lower percent-encoding", `printf %s "$S" | jq -Rsr @uri | sed 's/%../\L&/g'`, "jq"},
}

// dumpsWith is a script that shows the secret with each command at all alignments of a row.
func dumpsWith(commands ...string) string {
	return `for n in $(seq 0 16); do printf "%${n}s%s and more" "" "$S" > "$DIR/s"; ` + strings.Join(commands, ` < "$DIR/s"; `) + ` < "$DIR/s"; done`
}

const pythonForms = `
import os, sys, json, base64, quopri, html, shlex, urllib.parse, binascii, pprint, xml.sax.saxutils
s = os.environ["S"]; b = s.encode()
for v in (s, repr(s), ascii(s), repr(b), json.dumps(s), json.dumps(s, ensure_ascii=False), urllib.parse.quote(s), urllib.parse.quote_plus(s),
          urllib.parse.quote(s, safe=""), urllib.parse.urlencode({"t": s}), base64.encodebytes(b"text " + b).decode(), base64.urlsafe_b64encode(b).decode(),
          binascii.hexlify(b).decode(), binascii.b2a_base64(b).decode(), html.escape(s), xml.sax.saxutils.escape(s), shlex.quote(s),
          quopri.encodestring(b"some text before it, so that it wraps: " + b).decode()):
    print(v)
`

// unseen show a secret in a way that no masker can find, or that this one does not.
// docs/security.md lists them.
var unseen = []tool{
	{"compressed", `printf %s "$S" | gzip -nc | base64`, "gzip"},
	{"encrypted", `printf %s "$S" | openssl enc -aes-128-ctr -K 00 -iv 00 -a 2>/dev/null`, "openssl"},
	{"reversed", `printf %s "$S" | rev`, "rev"},
	{"cut up", `printf %s "$S" | sed 's/./& /g'`, "sed"},
	{"another case", `printf %s "$S" | tr a-zA-Z A-Za-z`, "tr"},
	{"two encodings", `printf %s "$S" | xxd -p | base64`, "base64"},
	{"base32", `printf %s "$S" | base32`, "base32"},
	{"separated digits", `printf %s "$S" | od -An -v -tx1 | tr -s ' \n' ':'`, "od"},
	{"dump in decimal numbers", `printf %s "$S" | od -tu1`, "od"},
	{"with line numbers", `printf 'text %s' "$S" | base64 -w20 | cat -n`, "cat"},
}

// show runs a tool, and returns the masked output.
func (c tool) show(t *testing.T, value, address string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	dir := t.TempDir()
	cmd := exec.CommandContext(ctx, "bash", "-c", c.script)
	cmd.Env = []string{
		"PATH=" + os.Getenv("PATH"), "S=" + value, "URL=" + address, "DIR=" + dir, "PYTHON=" + pythonForms, "LC_ALL=C.UTF-8", "HOME=" + dir,
		"GIT_TERMINAL_PROMPT=0",
	}
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	var masked bytes.Buffer
	m := secrets.NewMasker(&masked, secrets.NewSet(secrets.Config{}, value))
	for r := rand.New(rand.NewPCG(1, uint64(len(out)))); len(out) > 0; {
		n := min(len(out), 1+r.IntN(200))
		_, err := m.Write(out[:n])
		require.NoError(t, err)
		out = out[n:]
	}
	require.NoError(t, m.Close())
	return strings.ReplaceAll(masked.String(), dir, "DIR")
}

// Rules S3, S4: the output of real tools in a step shows no secret. The test knows no encodings: it
// runs each tool with two secrets of the same shape. A difference in the masked output shows
// something of them.
func TestNoToolShowsASecret(t *testing.T) {
	t.Parallel()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_ = r.ParseForm()
		http.Error(w, fmt.Sprintf("refused: %s %q", r.URL.RawQuery, r.PostForm), http.StatusForbidden)
	}))
	t.Cleanup(srv.Close)
	find := func(t *testing.T, c tool, shape string) []string {
		t.Helper()
		r := rand.New(rand.NewPCG(uint64(len(shape)), 7))
		return shown(c.show(t, inShape(shapes[shape], r), srv.URL), c.show(t, inShape(shapes[shape], r), srv.URL))
	}
	for _, c := range tools {
		needTool(t, c.needs)
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			for shape := range shapes {
				parts := find(t, c, shape)
				assert.Empty(t, parts[:min(len(parts), 4)], "a part of the secret %q", shape)
			}
		})
	}
	for _, c := range unseen {
		needTool(t, c.needs)
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			assert.NotEmpty(t, find(t, c, "word"), "the masker finds it, so correct docs/security.md")
		})
	}
}

// edge is the number of bytes of a line that may differ: a base64 character at each end of a value
// has bits of it, and the bytes before a break may be too few to hold the line back.
const edge = 5

// shown returns the parts of two masked outputs that differ, line by line.
func shown(one, other string) (parts []string) {
	a, b := strings.Split(one, "\n"), strings.Split(other, "\n")
	if len(a) != len(b) {
		return []string{one, other}
	}
	for i := range a {
		x, y := a[i], b[i]
		for x != "" && y != "" && x[0] == y[0] {
			x, y = x[1:], y[1:]
		}
		for x != "" && y != "" && x[len(x)-1] == y[len(y)-1] {
			x, y = x[:len(x)-1], y[:len(y)-1]
		}
		// Beyond the masked parts.
		x, y = strings.ReplaceAll(x, secrets.Replacement, ""), strings.ReplaceAll(y, secrets.Replacement, "")
		if max(len(x), len(y)) > edge {
			parts = append(parts, x, y)
		}
	}
	return parts
}
