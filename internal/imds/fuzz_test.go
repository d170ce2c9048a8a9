package imds

import (
	"context"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"
)

// answers serves bytes as a connection would: an answer of any status to each request.
type answers struct {
	status int
	body   string
	tokens []string
}

func (a *answers) RoundTrip(r *http.Request) (*http.Response, error) {
	a.tokens = append(a.tokens, r.Header.Get("X-Aws-Ec2-Metadata-Token"))
	if strings.ContainsAny(strings.Join(a.tokens, ""), "\r\n\x00") {
		return nil, errors.New("the header is not valid")
	}
	return &http.Response{StatusCode: a.status, Body: io.NopCloser(strings.NewReader(a.body)), Request: r}, nil
}

// A metadata service that answers anything leads to a documented notice or to none, and to few and bounded reads.
func FuzzAnswers(f *testing.F) {
	f.Add(200, `{"action":"terminate","time":"2026-11-23T08:22:00Z"}`)
	f.Add(200, `{"action":"rebalance"}`)
	f.Add(200, `{"noticeTime":"2026-11-23T08:00:00Z"}`)
	f.Add(200, `{"noticeTime":null}`)
	f.Add(200, "null")
	f.Add(401, "expired")
	f.Add(404, "<html>")
	f.Add(200, "{\"action\":\"stop\"}\x00"+strings.Repeat(" ", maxAnswer))
	f.Fuzz(func(t *testing.T, status int, body string) {
		from := &answers{status: status, body: body}
		s := &service{address: "http://192.0.2.1", client: &http.Client{Transport: from}}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		text, err := s.get(ctx, "spot/instance-action")
		if err == nil && (status != http.StatusOK || len(text) > maxAnswer) {
			t.Errorf("%d: %d bytes", status, len(text))
		}
		if len(from.tokens) > 4 {
			t.Errorf("%d requests", len(from.tokens))
		}
		n, ok := interruption(text, err)
		if ok != slices.Contains([]string{"terminate", "stop", "hibernate"}, n.Action) {
			t.Errorf("%+v %t", n, ok)
		}
		if n, ok := recommendation(text, err); ok && (n.Action != Rebalance || !strings.Contains(strings.ToLower(text), "noticetime")) {
			t.Errorf("%+v", n)
		}
	})
}
