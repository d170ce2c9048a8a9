package docs_test

import (
	"encoding/json"
	"encoding/xml"
	"errors"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// root is the directory of the repository.
const root = "../.."

// block is a fenced block of a page.
type block struct {
	page   string // relative to root
	line   int    // of the opening fence, from 1
	lang   string
	marker string // the HTML comment on the line before the fence, without "<!--" and "-->"
	text   string
}

// name identifies the block in a failure.
func (b block) name() string { return b.page + ":" + strconv.Itoa(b.line) }

// pages lists the paths of README.md and docs/*.md, relative to root.
func pages(t *testing.T) []string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(root, "docs", "*.md"))
	require.NoError(t, err)
	require.NotEmpty(t, found)
	list := []string{"README.md"}
	for _, p := range found {
		list = append(list, filepath.Join("docs", filepath.Base(p)))
	}
	return list
}

func readPage(t *testing.T, page string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, page))
	require.NoError(t, err)
	return string(text)
}

var (
	fence  = regexp.MustCompile("^ *```([a-z]*)$")
	marker = regexp.MustCompile(`^<!-- (.*) -->$`)
)

// blocks returns the fenced blocks of a page, and the text outside of them.
func blocks(t *testing.T, page string) (found []block, prose string) {
	t.Helper()
	var open *block
	var inside, outside []string
	previous := ""
	for i, line := range strings.Split(readPage(t, page), "\n") {
		m := fence.FindStringSubmatch(line)
		switch {
		case m != nil && open == nil:
			open, inside = &block{page: page, line: i + 1, lang: m[1]}, nil
			if c := marker.FindStringSubmatch(previous); c != nil {
				open.marker = c[1]
			}
		case m != nil && m[1] == "":
			open.text = strings.Join(inside, "\n") + "\n"
			found, open = append(found, *open), nil
		case open != nil:
			inside = append(inside, line)
		default:
			outside = append(outside, line)
		}
		previous = line
	}
	require.Nil(t, open, "%s: a fence is not closed", page)
	return found, strings.Join(outside, "\n")
}

func TestJSONBlocksAreValid(t *testing.T) {
	t.Parallel()
	count := 0
	for _, page := range pages(t) {
		found, _ := blocks(t, page)
		for _, b := range found {
			if b.lang != "json" {
				continue
			}
			count++
			var v any
			assert.NoError(t, json.Unmarshal([]byte(b.text), &v), b.name())
		}
	}
	assert.Greater(t, count, 20)
}

var (
	link    = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	heading = regexp.MustCompile(`(?m)^#+ (.*)$`)
	anchor  = regexp.MustCompile(`<a id="([^"]+)">`)
	dropped = regexp.MustCompile(`[^\p{L}\p{N}\- _]`)
)

// anchors returns the fragments that a link to a page can have.
func anchors(t *testing.T, page string) map[string]bool {
	t.Helper()
	_, prose := blocks(t, page)
	ids := map[string]bool{}
	for _, m := range heading.FindAllStringSubmatch(prose, -1) {
		id := strings.ReplaceAll(dropped.ReplaceAllString(strings.ToLower(m[1]), ""), " ", "-")
		for n, first := 1, id; ids[id]; n++ {
			id = first + "-" + strconv.Itoa(n)
		}
		ids[id] = true
	}
	for _, m := range anchor.FindAllStringSubmatch(prose, -1) {
		ids[m[1]] = true
	}
	return ids
}

func TestLinksLeadSomewhere(t *testing.T) {
	t.Parallel()
	for _, page := range pages(t) {
		_, prose := blocks(t, page)
		for _, m := range link.FindAllStringSubmatch(prose, -1) {
			if strings.Contains(m[1], "://") {
				continue
			}
			path, fragment, _ := strings.Cut(m[1], "#")
			target := page
			if path != "" {
				target = filepath.Join(filepath.Dir(page), path)
			}
			if _, err := os.Stat(filepath.Join(root, target)); !assert.NoError(t, err, "%s links to %s", page, m[1]) {
				continue
			}
			if fragment != "" && strings.HasSuffix(target, ".md") {
				assert.True(t, anchors(t, target)[fragment], "%s links to %s, which has no such heading", page, m[1])
			}
		}
	}
}

// A drawing with a mistake in its XML shows nothing at all.
func TestDrawingsAreWellFormed(t *testing.T) {
	t.Parallel()
	drawings, err := filepath.Glob(filepath.Join(root, "docs", "img", "*.svg"))
	require.NoError(t, err)
	for _, name := range drawings {
		f, err := os.Open(name)
		require.NoError(t, err)
		for d := xml.NewDecoder(f); ; {
			if _, err = d.Token(); err != nil {
				break
			}
		}
		require.NoError(t, f.Close())
		assert.True(t, errors.Is(err, io.EOF), "%s: %v", name, err)
	}
}
