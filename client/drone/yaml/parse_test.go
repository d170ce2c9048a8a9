package yaml

import (
	"crypto/aes"
	"crypto/cipher"
	"encoding/base64"
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestErrorsNameThePlaceAndTheMember(t *testing.T) {
	t.Parallel()
	const step = "kind: pipeline\nsteps:\n- name: a\n  image: b\n  "
	for text, want := range map[string]string{
		"kind: pipeline\nsteps: {}":                      "line 2, column 8: steps: it is a map, but must be a list",
		"kind: pipeline":                                 "there is no repository to clone",
		"kind: pipeline\nunknown: 1":                     "line 2, column 10: unknown: this member is not supported",
		"kind: pipeline\ntype: ssh":                      `line 1, column 1: the type "ssh" is not supported: use docker or exec`,
		"kind: pipeline\nname: other":                    `no pipeline "default", only ["other"]`,
		"kind: cron":                                     "the file has no pipeline",
		"kind: pipeline\n---\nkind: pipeline":            "line 3, column 1: the name \"default\" is the name of an earlier pipeline",
		"kind: pipeline\nsteps: [{image: b}]":            "steps[0]: it has no name",
		"kind: pipeline\nsteps: [{name: a}]":             `the step "a" has no image`,
		"kind: pipeline\ntype: exec\nsteps: [{name: a}]": `the step "a" has no commands`,
		"kind: pipeline\ntype: exec\nsteps: [{name: a, commands: [b], image: c}]": "steps[0].image: this member is not supported",
		"kind: pipeline\ntype: exec\nservices: []":                                "services: this member is not supported",
		step + "commands: ls":                                                 "line 5, column 13: steps[0].commands: it is a single value, but must be a list",
		step + "commands:\n  - echo a: b":                                     "line 6, column 5: steps[0].commands[0]: it is a map, but must be text: put text that contains a colon in quotes",
		step + "ulimits: {nofile: 1}":                                         "steps[0].ulimits: this member is not supported",
		step + "privileged: maybe":                                            "steps[0].privileged: it must be true or false",
		step + "pull: sometimes":                                              "steps[0].pull: the policy \"sometimes\" is not supported",
		step + "failure: retry":                                               "steps[0].failure: the value \"retry\" is not supported",
		step + "mem_limit: much":                                              "steps[0].mem_limit: \"much\" is not a size such as 64MiB",
		step + "shm_size: 999999999999999p":                                   "is too large",
		step + "resources: {limits: {cpu: many}}":                             "is not a number of processors",
		step + "environment: {A: [1]}":                                        "steps[0].environment.A: it is a list, but must be text",
		step + "environment: {A: {secret: b}}":                                "steps[0].environment.A.secret: this member is not supported",
		step + "environment: {'A=': b}":                                       `the name "A=" of a variable is not valid`,
		step + "when: {label: x}":                                             "steps[0].when.label: this member is not supported",
		step + "when: {branch: ['[']}":                                        "steps[0].when.branch[0]: the class [ is not closed",
		step + "when: {branch: '{a'}":                                         "has a brace that is not closed",
		step + "depends_on: [c]":                                              `line 5, column 15: steps[0].depends_on: the pipeline has no step "c"`,
		step + "depends_on: [a]":                                              `the step "a" depends on itself`,
		step + "image: 'B:::'":                                                "steps[0].image: the image \"B:::\" is not valid",
		step + "privileged: true":                                             "line 5, column 15: steps[0].privileged: only a trusted repository may set it",
		step + "devices: [{name: d}]":                                         "steps[0].devices: only a trusted repository",
		step + "dns: 192.0.2.1":                                               "steps[0].dns: only a trusted repository",
		step + "dns_search: a":                                                "steps[0].dns_search: only a trusted repository",
		step + "extra_hosts: ['a:192.0.2.1']":                                 "steps[0].extra_hosts: only a trusted repository",
		step + "network_mode: host":                                           "steps[0].network_mode: only a trusted repository",
		step + "volumes: [{path: /x}]":                                        "mounts a volume without a name",
		step + "commands: ['" + strings.Repeat("x", maxCommands) + "']":       "steps[0].commands: the commands have more than",
		"kind: pipeline\nvolumes: [{name: v, host: {path: /x}}]":              `volumes[0]: the volume "v" is a directory of the host, which only a trusted repository may mount`,
		"kind: pipeline\nvolumes: [{name: v, temp: {medium: memory}}]":        `volumes[0]: the volume "v" is in memory`,
		"kind: pipeline\nvolumes: [{name: v, claim: {name: x}}]":              "volumes[0].claim: this member is not supported",
		"kind: pipeline\nvolumes: [{name: _workspace, temp: {}}]":             `the name "_workspace" is reserved`,
		"kind: pipeline\nvolumes: [{name: v, temp: {}}, {name: v, temp: {}}]": `the volume "v" is there twice`,
		"kind: pipeline\nvolumes: [{name: v, temp: {}}]\nsteps: [{name: a, image: b, volumes: [{name: v, path: x}]}]":          `the path "x" of the volume "v" is not absolute`,
		"kind: pipeline\nvolumes: [{name: v, temp: {}}]\nsteps: [{name: a, image: b, volumes: [{name: v, path: /dlite/out}]}]": "belongs to the driver",
		"kind: pipeline\nworkspace: {path: /}\nsteps: []":                                                                      "", // below the base
		"kind: pipeline\nworkspace: {base: /proc/x}":                                                                           `workspace: the path "/proc/x" is not allowed`,
		"kind: pipeline\nworkspace: {base: x}":                                                                                 `workspace: the path "x" is not absolute`,
		"kind: pipeline\nsteps: [{name: clone, image: b}]":                                                                     "the name clone belongs to the clone",
		"kind: pipeline\nservices: [{name: a, image: b}]\nsteps: [{name: a, image: b}]":                                        `steps[0]: the name "a" is the name of an earlier step or service`,
		"kind: pipeline\nclone: {disable: true}":                                                                               "the pipeline has no steps",
		"kind: pipeline\nclone: {depth: -1}":                                                                                   "clone.depth: \"-1\" is not a whole number",
		"kind: secret\nname: a":                                                                                                `the secret "a" has neither data nor get`,
		"kind: secret\ndata: a":                                                                                                "the secret has no name",
		"kind: pipeline\n\tx":                                                                                                  "line 2",
		"kind: pipeline\nsteps: [{name: a, image: b, depends_on: [c]}, {name: c, image: b, depends_on: [d]}, {name: d, image: b, depends_on: [a]}]": "depends on itself, directly or through other steps",
	} {
		in := Input{Variables: push()}
		if strings.Contains(want, "no repository") {
			in.Variables = nil
		}
		_, err := compile(t, text, in)
		if want == "" {
			assert.NoError(t, err, text)
			continue
		}
		assert.ErrorContains(t, err, want, text)
	}
}

// bomb returns a document whose aliases expand to width to the power of levels.
func bomb(levels, width int) string {
	var b strings.Builder
	b.WriteString("a0: &a0 [x]\n")
	for i := 1; i < levels; i++ {
		fmt.Fprintf(&b, "a%d: &a%d [%s]\n", i, i, strings.TrimSuffix(strings.Repeat(fmt.Sprintf("*a%d,", i-1), width), ","))
	}
	return b.String() + "kind: pipeline\n"
}

// The test is not parallel, so that it measures only its own memory.
func TestParseRefusesBombsBeforeItExpandsThem(t *testing.T) {
	indented := func(n int) string {
		var b strings.Builder
		for i := range n {
			b.WriteString(strings.Repeat(" ", i) + "a:\n")
		}
		return b.String()
	}
	for name, c := range map[string]struct{ text, want string }{
		"aliases":     {bomb(9, 10), "values with its aliases expanded"},
		"chain":       {bomb(maxDepth, 1) + "b: *a" + fmt.Sprint(maxDepth-1), "nested more than"},
		"merges":      {"a: &a {k: 1}\nb: &b {<<: [" + strings.Repeat("*a,", 1000) + "]}\nc: {<<: [" + strings.Repeat("*b,", 1000) + "]}\n", "values with its aliases expanded"},
		"long values": {"a: &a " + strings.Repeat("x", 100_000) + "\nb: [" + strings.Repeat("*a,", 10_000) + "]\n", "values with its aliases expanded"},
		"patterns":    {"kind: pipeline\nsteps: [{name: a, image: b, when: {branch: [" + strings.Repeat("a*,", maxPatterns+1) + "]}}]\n", "patterns: at most"},
		"own alias":   {"a: &a [*a]\n", "stands inside its own anchor"},
		"documents":   {strings.Repeat("---\n"+bomb(5, 10), 10), "values with its aliases expanded"},
		"many":        {strings.Repeat("--- a\n", maxDocuments+1), "documents: at most"},
		"flow depth":  {strings.Repeat("[", 100) + strings.Repeat("]", 100), "nested more than"},
		"block depth": {indented(100), "nested more than"},
		"commas":      {"[" + strings.Repeat("a,", 300_000) + "]", "lines, commas and brackets"},
		"size":        {strings.Repeat("#", maxText+1), "bytes: at most"},
		"zero byte":   {"kind: \x00", "zero byte"},
		"not UTF-8":   {"kind: \xff", "not UTF-8"},
		"list as key": {"kind: pipeline\n? [a]\n: b\n", "a key must be text"},
		"long key":    {"kind: pipeline\n? " + strings.Repeat("k", 300) + "\n: b\n", "a name has 300 bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			_, err := compile(t, c.text, Input{})
			runtime.ReadMemStats(&after)
			require.ErrorContains(t, err, c.want)
			require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(64<<20), "bytes of memory")
		})
	}
}

// The error of one pipeline does not concern the others.
func TestAPipelineRunsBesideOneWithAProblem(t *testing.T) {
	t.Parallel()
	c, err := parse([]byte("kind: pipeline\nname: bad\nfoo: 1\n---\nkind: pipeline\nname: good\nsteps: [{name: a, image: b}]\n---\nkind: pipeline\ntype: ssh\nname: other\nserver: {}\n"))
	require.NoError(t, err)
	require.Len(t, c.pipelines, 3)
	bad, err := c.find("bad")
	require.ErrorContains(t, err, "line 3, column 6: foo")
	_, err = bad.compile(Input{Variables: push()})
	require.Error(t, err)
	good, err := c.find("good")
	require.NoError(t, err)
	_, err = good.compile(Input{Variables: push()})
	require.NoError(t, err)
	_, err = c.find("other")
	require.ErrorContains(t, err, "the type \"ssh\"")
}

// JSON is YAML: converters of other languages produce it.
func TestJSONIsRead(t *testing.T) {
	t.Parallel()
	plan := compiled(t, `{"kind":"pipeline","type":"docker","name":"default","steps":[{"name":"a","image":"b","commands":["x"],"settings":{"n":1e3}}]}`, Input{})
	require.Equal(t, "1000", plan.step("a").Execute.Environment["PLUGIN_N"])
}

func TestSecretsAreReadAndDecrypted(t *testing.T) {
	t.Parallel()
	const key = "not-a-real-key-not-a-real-key-32"
	block, err := aes.NewCipher([]byte(key))
	require.NoError(t, err)
	gcm, err := cipher.NewGCM(block)
	require.NoError(t, err)
	nonce := make([]byte, gcm.NonceSize())
	data := base64.StdEncoding.EncodeToString(gcm.Seal(nonce, nonce, []byte("not-a-real-secret"), nil))
	c, err := parse([]byte("kind: secret\nname: a\ndata: " + data + "\n---\nkind: secret\nname: b\nget: {path: team/ci, name: key}\n"))
	require.NoError(t, err)
	require.Equal(t, []Secret{{Name: "a", Data: data}, {Name: "b", Path: "team/ci", Key: "key"}}, c.secrets)
	plain, err := c.secrets[0].decrypt(key)
	require.NoError(t, err)
	require.Equal(t, "not-a-real-secret", plain)
	for want, s := range map[string]Secret{
		"not base64": {Data: "?"}, "too short": {Data: "AAAA"}, "not encrypted for this repository": {Data: strings.Repeat("A", 64)},
	} {
		_, err := s.decrypt(key)
		require.ErrorContains(t, err, want)
	}
	_, err = c.secrets[0].decrypt("short")
	require.ErrorContains(t, err, "not a valid key")

	text := "kind: secret\nname: a\ndata: " + data + "\n---\nkind: pipeline\nsteps: [{name: x, image: y, environment: {A: {from_secret: a}}, settings: {b: {from_secret: b}}}]\n"
	for want, in := range map[string]Input{
		"not-a-real-secret": {SecretKey: key}, "": {}, "other": {SecretKey: key, Secrets: map[string]string{"a": "other"}},
	} {
		plan := compiled(t, text, in)
		require.Equal(t, want, plan.step("x").Execute.Environment["A"])
		require.Empty(t, plan.step("x").Execute.Environment["PLUGIN_B"])
		require.Equal(t, want != "", len(plan.Init.Secrets) == 1)
	}
	_, err = compile(t, text, Input{Variables: push(), SecretKey: "not-a-real-key-not-a-real-key-33"})
	require.ErrorContains(t, err, `decrypt secret "a"`)
}
