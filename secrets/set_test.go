package secrets_test

import (
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/secrets"
)

const fake = `not-a"real'$ecret/<of>&course+é`

// Rule S3.
func TestSetMasksEncodings(t *testing.T) {
	t.Parallel()
	set := secrets.NewSet(secrets.Config{}, fake)
	encoded, err := json.Marshal(fake)
	require.NoError(t, err)
	for name, text := range map[string]string{
		"JSON of Go":                 string(encoded[1 : len(encoded)-1]),
		"JSON of JavaScript":         `not-a\"real'$ecret/<of>&course+é`,
		"JSON of Python":             `not-a\"real'$ecret/<of>&course+\u00e9`,
		"JSON of PHP":                `not-a\"real'$ecret\/<of>&course+é`,
		"JSON of PHP, by default":    `not-a\"real'$ecret\/<of>&course+\u00e9`,
		"JSON of .NET":               `not-a\u0022real\u0027$ecret/\u003Cof\u003E\u0026course\u002B\u00E9`,
		"JSON for HTML":              `not-a\"real'$ecret/\u003cof\u003e\u0026course+é`,
		"hexadecimal":                hex.EncodeToString([]byte(fake)),
		"hexadecimal in upper case":  strings.ToUpper(hex.EncodeToString([]byte(fake))),
		"query":                      url.QueryEscape(fake),
		"path":                       url.PathEscape(fake),
		"component in lower case":    strings.ToLower(url.QueryEscape(fake)),
		"encodeURIComponent":         "not-a%22real'%24ecret%2F%3Cof%3E%26course%2B%C3%A9",
		"single quotes":              `not-a"real'\''$ecret/<of>&course+é`,
		"single in double quotes":    `not-a"real'"'"'$ecret/<of>&course+é`,
		"double quotes":              `not-a\"real'\$ecret/<of>&course+é`,
		"printf %q":                  `not-a\"real\'\$ecret/\<of\>\&course+é`,
		"dollar quotes in ASCII":     `not-a"real\'$ecret/<of>&course+\303\251`,
		"dollar quotes":              `not-a"real\'$ecret/<of>&course+é`,
		"base64":                     base64.StdEncoding.EncodeToString([]byte(fake)),
		"base64 for URLs":            base64.URLEncoding.EncodeToString([]byte(fake)),
		"base64 without padding":     base64.RawStdEncoding.EncodeToString([]byte(fake)),
		"base64 of one byte and it":  base64.StdEncoding.EncodeToString([]byte("u" + fake))[2:],
		"base64 of two bytes and it": base64.StdEncoding.EncodeToString([]byte("u:" + fake))[3:],
	} {
		assert.Equal(t, "<"+secrets.Replacement+">", set.Mask("<"+text+">"), name)
	}
}

// Rule S3. The output shows at most the base64 characters that also depend on the text
// around the secret.
func TestSetMasksBase64AtEveryAlignment(t *testing.T) {
	t.Parallel()
	set := secrets.NewSet(secrets.Config{}, "visibly-fake-value")
	for lead := range 7 {
		for trail := range 7 {
			text := strings.Repeat("<", lead) + "visibly-fake-value" + strings.Repeat(">", trail)
			for _, enc := range []*base64.Encoding{base64.StdEncoding, base64.RawURLEncoding} {
				whole := enc.EncodeToString([]byte(text))
				out := set.Mask(whole)
				before, after, ok := strings.Cut(out, secrets.Replacement)
				require.True(t, ok, "lead %d, trail %d", lead, trail)
				assert.LessOrEqual(t, len(before), (lead*8+5)/6)
				assert.LessOrEqual(t, len(after), len(whole)-(lead+18)*8/6)
			}
		}
	}
}

func TestSetMasksMultiLineValues(t *testing.T) {
	t.Parallel()
	value := "{\n  \"key\": \"fake-key-value\",\n  \"id\": 1\n}\n"
	set := secrets.NewSet(secrets.Config{}, value)
	assert.Equal(t, "******", set.Mask(strings.TrimSpace(value)))
	assert.Equal(t, "******", set.Mask(strings.TrimSpace(strings.ReplaceAll(value, "\n", "\r\n"))), "CRLF")
	assert.Equal(t, "log: ******!", set.Mask(`log: "key": "fake-key-value",!`), "a line by itself")
	assert.Equal(t, "{ }", set.Mask("{ }"), "short lines are not masked")
	assert.Equal(t, "******", set.Mask(`{\n  \"key\": \"fake-key-value\",\n  \"id\": 1\n}`), "as a JSON string")

	for _, ends := range []string{"\n", "\r\n", "\r"} {
		// Both lines are too short to be masked alone.
		set := secrets.NewSet(secrets.Config{}, "1: fake"+ends+"2: fake"+ends)
		for _, shown := range []string{"\n", "\r\n", "\r", "\r\r\n"} {
			assert.Equal(t, "<******>", set.Mask("<1: fake"+shown+"2: fake>"), "%q as %q", ends, shown)
		}
	}
}

func TestSetMasksWrappedBase64(t *testing.T) {
	t.Parallel()
	value := strings.Repeat("fake-value-", 20)
	set := secrets.NewSet(secrets.Config{}, value)
	enc := base64.StdEncoding.EncodeToString([]byte(value))
	for _, width := range []int{64, 76} {
		var lines []string
		for i := 0; i < len(enc); i += width {
			lines = append(lines, enc[i:min(i+width, len(enc))])
		}
		assert.Equal(t, "<******>", set.Mask("<"+strings.Join(lines, "\n")+">"))
		assert.Equal(t, "# ******\n# ******", set.Mask("# "+lines[0]+"\n# "+lines[1]))
	}
}

func TestSetMasksWrappedHexadecimal(t *testing.T) {
	t.Parallel()
	value := strings.Repeat("fake-value-", 10)
	enc := hex.EncodeToString([]byte(value))
	set := secrets.NewSet(secrets.Config{}, value)
	assert.Equal(t, "******", set.Mask(enc[:60]+"\n"+enc[60:120]+"\n"+enc[120:180]+"\n"+enc[180:]))
	assert.Equal(t, "616263 is no secret", secrets.NewSet(secrets.Config{}, "abc").Mask("616263 is no secret"))
}

// The escape tables agree with the standard library.
func TestSetMasksTheStandardLibrarysEncodingsOfEveryByte(t *testing.T) {
	t.Parallel()
	for c := range 256 {
		value := "fake" + string([]byte{byte(c)}) + "value"
		set := secrets.NewSet(secrets.Config{}, value)
		for _, text := range []string{
			url.QueryEscape(value), url.PathEscape(value),
			hex.EncodeToString([]byte(value)), base64.URLEncoding.EncodeToString([]byte(value)),
		} {
			assert.Equal(t, "<******>", set.Mask("<"+text+">"), "%q", text)
		}
		if enc, err := json.Marshal(value); assert.NoError(t, err) {
			assert.Equal(t, `"******"`, set.Mask(string(enc)), "%q", value)
		}
	}
}

// Rule S4.
func TestSetHasAMinimumLength(t *testing.T) {
	t.Parallel()
	one := secrets.NewSet(secrets.Config{MinLength: 1}, "7")
	assert.Equal(t, "a ****** b", one.Mask("a 7 b"))
	five := secrets.NewSet(secrets.Config{MinLength: 5, MinLine: 3}, "four", "a\nfour\nb")
	assert.Equal(t, "a ****** b", five.Mask("a four b"), "as a line of the other value")
	assert.ElementsMatch(t, []string{"four", "a\nfour\nb"}, five.Values(), "also the value that is too short")
	assert.Zero(t, secrets.NewSet(secrets.Config{}, "", " \n").Len())
}

func TestSetNeverPrintsItsValues(t *testing.T) {
	t.Parallel()
	set := secrets.NewSet(secrets.Config{}, "visibly-fake-value")
	asJSON, err := json.Marshal(map[string]any{"set": set})
	require.NoError(t, err)
	for _, text := range []string{
		set.String(), fmt.Sprint(set), fmt.Sprintf("%v %+v %#v %q %x %d", set, set, set, set, set, set),
		fmt.Sprintf("%+v", struct{ S *secrets.Set }{set}), string(asJSON),
	} {
		assert.NotContains(t, text, "visibly")
		assert.NotContains(t, text, "76697369626c79")
	}
	assert.Contains(t, set.String(), "1 values")
}

// The cost of an addition does not depend on the number of values: few matchers exist at
// any time.
func TestAddingOneByOneKeepsTheMatchersFew(t *testing.T) {
	t.Parallel()
	set := new(secrets.Set)
	values := fakeTokens(300)
	for i, v := range values {
		set.Add(v)
		require.Equal(t, "<******>", set.Mask("<"+v+">"), "just added")
		require.LessOrEqual(t, secrets.Matchers(set), 5*3, "after %d values", i+1)
	}
	for _, v := range values {
		require.Equal(t, "<******>", set.Mask("<"+v+">"))
	}
}
