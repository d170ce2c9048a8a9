package source

import (
	"net/http"
	"net/url"
	"strings"
	"testing"
)

// The next page of a registry's tags is on the same server, and gets the credentials of the connector and no others.
func FuzzNextPage(f *testing.F) {
	const current = "https://registry.example/v2/app/tags/list?n=1000"
	f.Add(`</v2/app/tags/list?n=1000&last=b>; rel="next"`)
	f.Add(`<https://user:visibly-fake@registry.example/v2/>; rel=next`)
	f.Add(`<//other.example/>; rel="next"`)
	f.Add(`<javascript:1>;rel=next`)
	f.Add(`<` + current + `>; rel="next"`)
	f.Add(`<http://registry.example/#x>; rel="next"`)
	f.Fuzz(func(t *testing.T, link string) {
		next, err := nextPage(&http.Response{Header: http.Header{"Link": {link}}}, current)
		if err != nil {
			if strings.ContainsFunc(err.Error(), func(r rune) bool { return r < ' ' }) {
				t.Errorf("%q", err)
			}
			return
		}
		if next == "" {
			return
		}
		u, err := url.Parse(next)
		if err != nil || u.Host != "registry.example" || u.Scheme != "https" || u.User != nil || next == current {
			t.Errorf("%q, %v", next, err)
		}
	})
}
