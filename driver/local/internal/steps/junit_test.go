package steps

import (
	"encoding/binary"
	"strings"
	"testing"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/task/stage"
)

// Rule D5: the forms in which test tools write their reports.
func TestJUnitReportsAreSummarized(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		report string
		want   stage.TestSummary
	}{
		"suites": {`<?xml version="1.0" encoding="UTF-8"?><testsuites tests="99" failures="99"><testsuite name="s" tests="4" time="9">
			<properties><property name="go" value="1"/></properties>
			<testcase classname="c" name="good" time="0.25"/>
			<testcase classname="c" name="bad" time="1,000.5"><failure message="not equal" type="x">trace</failure><failure message="later"/></testcase>
			<testcase classname="c" name="broken" time="NaN"><error><![CDATA[ panic: ]]>no</error></testcase>
			<testcase classname="c" name="left" time="-3"><skipped/></testcase>
			</testsuite></testsuites>`,
			stage.TestSummary{Total: 4, Passed: 1, Failed: 1, Errors: 1, Skipped: 1, DurationMillis: 1_000_750, Failures: []stage.TestFailure{
				{Suite: "s", Class: "c", Name: "bad", Message: "not equal"}, {Suite: "s", Class: "c", Name: "broken", Message: "panic: no"},
			}}},
		"one suite": {`<testsuite name="s"><testcase name="a"/></testsuite>`, stage.TestSummary{Total: 1, Passed: 1}},
		"nested": {`<testsuites><testsuite name="outer" tests="7"><testsuite name="inner"><testcase name="a"><failure/></testcase></testsuite>
			<testcase name="b"/></testsuite></testsuites>`,
			stage.TestSummary{Total: 2, Passed: 1, Failed: 1, Failures: []stage.TestFailure{{Suite: "inner", Name: "a"}}}},
		"numbers alone": {`<testsuites><testsuite tests="5" failures="1" errors="1" skipped="1" time="2"/><testsuite tests="2" disabled="1"/></testsuites>`,
			stage.TestSummary{Total: 7, Passed: 3, Failed: 1, Errors: 1, Skipped: 2, DurationMillis: 2000}},
		"absurd numbers": {`<testsuite tests="2" failures="-4" errors="7" skipped="9"/>`, stage.TestSummary{Total: 2, Errors: 2}},
		"error and failure": {`<testsuite><testcase name="a"><failure message="f"/><error message="e"/><skipped/></testcase></testsuite>`,
			stage.TestSummary{Total: 1, Errors: 1, Failures: []stage.TestFailure{{Name: "a", Message: "f"}}}},
		"flaky": {`<testsuite><testcase name="a"><flakyFailure message="f"/><rerunFailure/></testcase></testsuite>`, stage.TestSummary{Total: 1, Passed: 1}},
		"not run": {`<testsuite><testcase name="a" status="notrun"/><testcase name="b" status="run" result="completed"/><testcase name="c" result="skipped"/></testsuite>`,
			stage.TestSummary{Total: 3, Passed: 1, Skipped: 2}},
		"suite's own error": {`<testsuite name="s" tests="0"><error message="no set-up">text</error></testsuite>`,
			stage.TestSummary{Total: 1, Errors: 1, Failures: []stage.TestFailure{{Suite: "s", Name: "s", Message: "no set-up"}}}},
		"no tests": {`<testsuites/>`, stage.TestSummary{}},
		"output":   {`<testsuite><system-out><![CDATA[<failure>]]></system-out><testcase name="a"><system-err>x</system-err></testcase></testsuite>`, stage.TestSummary{Total: 1, Passed: 1}},
		"decimal comma": {`<testsuite><testcase name="a" time="0,5"/><testcase name="b" time="1.234,25"/><testcase name="c" time="1,234.25"/><testcase name="d" time="000,000,003"/></testsuite>`,
			stage.TestSummary{Total: 4, Passed: 4, DurationMillis: 500 + 2*1_234_250 + 3000}},
		"UTF-16":            {utf16Text(`<?xml version="1.0" encoding="utf-16"?><testsuite><testcase name="grüße 🙂"><failure/></testcase></testsuite>`), stage.TestSummary{Total: 1, Failed: 1, Failures: []stage.TestFailure{{Name: "grüße 🙂"}}}},
		"UTF-8 with a mark": {"\ufeff<?xml version='1.0'?><testsuite><testcase/></testsuite>", stage.TestSummary{Total: 1, Passed: 1}},
		"latin":             {"<?xml version='1.0' encoding='ISO-8859-1'?><testsuite><testcase name='gr\xfc\xdfe'><failure/></testcase></testsuite>", stage.TestSummary{Total: 1, Failed: 1, Failures: []stage.TestFailure{{Name: "grüße"}}}},
		"no entities":       {`<!DOCTYPE x><testsuite><testcase name="&lt;a&gt;"><failure/></testcase></testsuite>`, stage.TestSummary{Total: 1, Failed: 1, Failures: []stage.TestFailure{{Name: "<a>"}}}},
		"last of many":      {`<testsuite>` + strings.Repeat(`<testcase name="x"><failure/></testcase>`, 4) + `</testsuite>`, stage.TestSummary{Total: 4, Failed: 4, Failures: []stage.TestFailure{{Name: "x"}, {Name: "x"}, {Name: "x"}}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			sum, err := parseJUnit([]byte(c.report), 3, asItIs)
			require.NoError(t, err)
			require.Equal(t, c.want, *sum)
		})
	}
}

func TestJUnitRefusesOtherFilesWithoutQuotingThem(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ report, want string }{
		"empty":      {"", "it is empty"},
		"text":       {"hunter2", "it is empty"},
		"html":       {"<html>hunter2</html>", "not a JUnit report"},
		"cut off":    {"<testsuite>\n<testcase name='a'>", "line 2: it is not well-formed XML"},
		"wrong end":  {"<testsuite></hunter2>", "line 1: it is not well-formed XML"},
		"entity":     {`<!DOCTYPE x [<!ENTITY a "hunter2">]><testsuite name="&a;"/>`, "not well-formed"},
		"deep":       {strings.Repeat("<testsuite>", 65), "deeper than 64"},
		"encoding":   {`<?xml version="1.0" encoding="hunter2"?><testsuite/>`, "not well-formed"},
		"utf-16":     {"\xff\xfe<\x00t\x00", "not well-formed"},
		"not UTF-8":  {"<testsuite name='\xff'/>", "not well-formed"},
		"bad sign":   {"<testsuite name='\x01'/>", "not well-formed"},
		"other root": {"<hunter2/>", "not a JUnit report"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			sum, err := parseJUnit([]byte(c.report), 3, asItIs)
			require.ErrorContains(t, err, c.want)
			require.NotContains(t, err.Error(), "hunter2")
			require.Nil(t, sum)
		})
	}
}

func TestJUnitCutsLongTextOnACharacter(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("ü", 3000)
	sum, err := parseJUnit([]byte(`<testsuite><testcase name="`+long+`"><failure>`+long+`</failure></testcase></testsuite>`), 1, asItIs)
	require.NoError(t, err)
	f := sum.Failures[0]
	require.Equal(t, strings.Repeat("ü", 150)+"...", f.Name)
	require.LessOrEqual(t, len(f.Message), junitTextLimit+3)
	require.True(t, utf8.ValidString(f.Message))
}

func FuzzJUnit(f *testing.F) {
	f.Add(`<testsuites><testsuite name="s" tests="4" time="1.5"><testcase name="a" time="1"><failure message="m">t</failure></testcase><error/></testsuite></testsuites>`)
	f.Add(`<testsuite tests="3" failures="1" errors="1" skipped="9"><testcase><error/><skipped/></testcase><testsuite><testcase/></testcase></testsuite>`)
	f.Add(`<testsuite><testcase><testcase><failure><testsuite><error>x</error></testsuite></failure></testcase></testcase></testsuite>`)
	f.Fuzz(func(t *testing.T, report string) {
		sum, err := parseJUnit([]byte(report), 2, asItIs)
		if err != nil {
			require.Nil(t, sum)
			return
		}
		require.Equal(t, sum.Total, sum.Passed+sum.Failed+sum.Errors+sum.Skipped)
		for _, n := range []int{sum.Passed, sum.Failed, sum.Errors, sum.Skipped} {
			require.GreaterOrEqual(t, n, 0)
		}
		require.GreaterOrEqual(t, sum.DurationMillis, int64(0))
		require.LessOrEqual(t, len(sum.Failures), min(2, sum.Failed+sum.Errors))
		for _, f := range sum.Failures {
			require.True(t, utf8.ValidString(f.Name+f.Message+f.Suite+f.Class))
			require.LessOrEqual(t, len(f.Message), junitTextLimit+3)
		}
	})
}

func asItIs(s string) string { return s }

// Rule S3: after a cut, a mask would not recognize the rest of a secret.
func TestTextIsMaskedBeforeItIsCut(t *testing.T) {
	t.Parallel()
	const secret = "visibly-fake-secret"
	mask := func(s string) string { return strings.ReplaceAll(s, secret, "******") }
	name, text := strings.Repeat("n", junitNameLimit-8)+secret, strings.Repeat("t", junitTextLimit-8)+secret
	for _, failure := range []string{
		`<failure message="` + text + `"/>`, `<failure>` + text + `</failure>`, `<failure>` + text[:9] + `<!-- -->` + text[9:] + `</failure>`,
	} {
		sum, err := parseJUnit([]byte(`<testsuite name="`+name+`"><testcase classname="`+name+`" name="`+name+`">`+failure+`</testcase></testsuite>`), 1, mask)
		require.NoError(t, err)
		require.Len(t, sum.Failures, 1)
		f := sum.Failures[0]
		for _, got := range []string{f.Suite, f.Class, f.Name, f.Message} {
			assert.Contains(t, got, "******")
			assert.NotContains(t, got, "visibly")
		}
	}
}

// utf16Text returns s in UTF-16 with a byte order mark, as PowerShell writes it.
func utf16Text(s string) string {
	b := []byte{0xff, 0xfe}
	for _, u := range utf16.Encode([]rune(s)) {
		b = binary.LittleEndian.AppendUint16(b, u)
	}
	return string(b)
}
