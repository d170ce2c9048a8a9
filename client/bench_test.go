package client_test

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/client"
	"github.com/delegate-io/dlite/task"
)

const (
	benchEvents = `{"delegateTaskEvents":[{"accountId":"acc 1","delegateTaskId":"t","sync":true,"taskType":"A"}]}`
	benchTask   = `{"id":"t","type":"A","data":{"name":"build","commands":["go build ./..."],"env":{"A":"1","B":"2"}},` +
		`"timeout":60000,"logging":{"token":"fake","abstractions":{"accountId":"acc 1"}}}`
	benchAnswer = `{"command_execution_status":"SUCCESS","output_vars":{"A":"1"}}`
)

func benchServer(b *testing.B) *httptest.Server {
	b.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		switch r.Method {
		case http.MethodGet:
			_, _ = io.WriteString(w, benchEvents)
		case http.MethodPut:
			_, _ = io.WriteString(w, benchTask)
		}
	}))
	b.Cleanup(s.Close)
	return s
}

// run calls f sequentially, or from 16 executors at the same time.
func run(b *testing.B, f func() error) {
	b.Helper()
	b.Run("sequential", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if err := f(); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("executors=16", func(b *testing.B) {
		b.ReportAllocs()
		b.SetParallelism(8) // times GOMAXPROCS, two on a small machine
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				if err := f(); err != nil {
					b.Error(err)
					return
				}
			}
		})
	})
}

// BenchmarkClient polls, acquires and responds with the client. Compare it with
// BenchmarkBare, which makes the same requests.
func BenchmarkClient(b *testing.B) {
	s := benchServer(b)
	c, err := client.New(s.URL, account, fakeSecret)
	require.NoError(b, err)
	b.Cleanup(c.CloseIdleConnections)
	ctx := context.Background()
	run(b, func() error {
		p, err := c.Poll(ctx, "d", client.PollQuery{})
		if err != nil {
			return err
		}
		t, err := c.Acquire(ctx, "d", p.Events[0])
		if err != nil {
			return err
		}
		return c.Respond(ctx, "d", t, &task.Response{ID: t.ID, Type: t.Type, Code: task.OK, Data: []byte(benchAnswer)})
	})
}

// BenchmarkBare makes the three requests with net/http and does not decode the
// answers. It is the lower bound for the client.
func BenchmarkBare(b *testing.B) {
	s := benchServer(b)
	transport := &http.Transport{MaxIdleConnsPerHost: 256}
	b.Cleanup(transport.CloseIdleConnections)
	c := &http.Client{Transport: transport}
	auth := "Delegate " + strings.Repeat("x", 300)
	body := []byte(`{"id":"t","data":` + benchAnswer + `,"type":"A","code":"OK"}`)
	call := func(method, url string, body io.Reader) error {
		r, err := http.NewRequestWithContext(context.Background(), method, url, body)
		if err != nil {
			return err
		}
		r.Header.Set("Authorization", auth)
		r.Header.Set("Content-Type", "application/json")
		resp, err := c.Do(r)
		if err != nil {
			return err
		}
		_, err = io.Copy(io.Discard, resp.Body)
		_ = resp.Body.Close()
		return err
	}
	run(b, func() error {
		if err := call(http.MethodGet, s.URL+"/api/agent/delegates/d/task-events?accountId=acc+1", nil); err != nil {
			return err
		}
		if err := call(http.MethodPut, s.URL+"/api/agent/v2/delegates/d/tasks/t/acquire?accountId=acc+1&delegateInstanceId=d", nil); err != nil {
			return err
		}
		return call(http.MethodPost, s.URL+"/api/agent/v2/tasks/t/delegates/d?accountId=acc+1", bytes.NewReader(body))
	})
}
