package main

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/wings-software/dlite/client"
)

// fakeManager hands out one task.
type fakeManager struct {
	*httptest.Server
	mu       sync.Mutex
	task     *client.Task
	taken    bool
	capacity string
	answers  chan string
}

func newFakeManager(t *testing.T, task *client.Task) *fakeManager {
	t.Helper()
	m := &fakeManager{task: task, answers: make(chan string, 1)}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /api/agent/delegates/register", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `{"resource": {"delegateId": "d-9"}}`)
	})
	mux.HandleFunc("POST /api/agent/delegates/heartbeat-with-polling", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("POST /api/agent/delegates/unregister", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("POST /api/agent/delegates/register-delegate-capacity/{id}", func(_ http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		m.mu.Lock()
		defer m.mu.Unlock()
		m.capacity = r.PathValue("id") + string(b)
	})
	mux.HandleFunc("GET /api/agent/delegates/{id}/task-events", func(w http.ResponseWriter, _ *http.Request) {
		m.mu.Lock()
		defer m.mu.Unlock()
		if m.taken {
			_, _ = io.WriteString(w, `{"delegateTaskEvents": []}`)
			return
		}
		_, _ = io.WriteString(w, `{"delegateTaskEvents": [{"accountId": "account", "delegateTaskId": "`+task.ID+`", "taskType": "`+task.Type+`"}]}`)
	})
	mux.HandleFunc("PUT /api/agent/v2/delegates/{id}/tasks/{task}/acquire", func(w http.ResponseWriter, _ *http.Request) {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.taken = true
		_ = json.NewEncoder(w).Encode(m.task)
	})
	mux.HandleFunc("POST /api/agent/v2/tasks/{task}/delegates/{id}", func(_ http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		m.answers <- string(b)
	})
	m.Server = httptest.NewServer(mux)
	t.Cleanup(m.Close)
	return m
}

func TestTheRunnerTakesATask(t *testing.T) {
	c := newTestCommand(t)
	m := newFakeManager(t, &client.Task{ID: "task-7", Type: initTask, Data: json.RawMessage(setupData)})
	c.env.Manager.Endpoint, c.env.Limits.Stages = m.URL, 3
	ctx, stop := context.WithCancel(context.Background())
	p, err := c.registerPoller(ctx, c.tags())
	if err != nil {
		t.Fatal(err)
	}
	if c.delegateInfo.ID != "d-9" || c.delegateInfo.Host == "" {
		t.Errorf("%+v", c.delegateInfo)
	}
	if err := c.registerCapacity(ctx); err != nil {
		t.Fatal(err)
	}
	m.mu.Lock()
	if !strings.HasPrefix(m.capacity, "d-9") || !strings.Contains(m.capacity, "3") {
		t.Errorf("capacity: %s", m.capacity)
	}
	m.mu.Unlock()
	over := make(chan error, 1)
	go func() { over <- p.Poll(ctx, 2, c.delegateInfo.ID, 20*time.Millisecond) }()
	select {
	case answer := <-m.answers:
		if !strings.Contains(answer, string(success)) || !strings.Contains(answer, `"OK"`) {
			t.Errorf("answer: %s", answer)
		}
	case <-time.After(20 * time.Second):
		t.Error("no answer came")
	}
	if _, ok := c.stages.find("stage-1"); !ok {
		t.Error("the stage is not open")
	}
	stop()
	if err := <-over; err != nil {
		t.Error(err)
	}
}
