package client_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"strings"
	"time"

	"github.com/delegate-io/dlite/client"
	"github.com/delegate-io/dlite/task"
)

// tinyManager has one task and prints the answer.
func tinyManager() *httptest.Server {
	return httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case strings.HasSuffix(r.URL.Path, "/register"):
			_, _ = io.WriteString(w, `{"resource":{"delegateId":"delegate-1"}}`)
		case strings.HasSuffix(r.URL.Path, "/task-events"):
			_, _ = io.WriteString(w, `{"delegateTaskEvents":[{"delegateTaskId":"task-1","taskType":"HELLO"}]}`)
		case strings.HasSuffix(r.URL.Path, "/acquire"):
			_, _ = io.WriteString(w, `{"id":"task-1","type":"HELLO","data":{"name":"world"}}`)
		case strings.HasSuffix(r.URL.Path, "/tasks/task-1/delegates/delegate-1"):
			_, _ = io.Copy(w, r.Body)
		default:
			w.WriteHeader(http.StatusNotFound)
			_, _ = io.WriteString(w, `{"error_msg":"no such delegate"}`)
		}
	}))
}

// The calls for one task: register, poll, acquire, respond. Package poller makes
// them for many tasks.
func Example() {
	manager := tinyManager()
	defer manager.Close()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()

	c, err := client.New(manager.URL, "account", "0000000000000000000000000000fa4e")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer c.CloseIdleConnections()
	d, err := c.Register(ctx, &client.Registration{DelegateName: "build-7", SupportedTaskTypes: []string{"HELLO"}})
	if err != nil {
		fmt.Println(err)
		return
	}
	pending, err := c.Poll(ctx, d.ID, client.PollQuery{Wait: 20 * time.Second})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, e := range pending.Events {
		t, err := c.Acquire(ctx, d.ID, e)
		if err != nil || t == nil {
			continue // another delegate has it
		}
		fmt.Printf("%s %s: %s\n", t.Type, t.ID, t.Data)
		err = c.Respond(ctx, d.ID, t, &task.Response{Code: task.OK, Data: []byte(`"hello world"`)})
		fmt.Println("answered:", err == nil)
	}
	// Output:
	// HELLO task-1: {"name":"world"}
	// answered: true
}

// errors.Is classifies an error, and errors.As gives its details.
func ExampleError() {
	manager := tinyManager()
	defer manager.Close()
	c, err := client.New(manager.URL, "account", "", client.WithToken("a-ready-made-token"))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer c.CloseIdleConnections()
	err = c.Heartbeat(context.Background(), &client.Registration{DelegateID: "delegate-2"})
	fmt.Println(errors.Is(err, client.ErrGone))
	var e *client.Error
	if errors.As(err, &e) {
		fmt.Println(e.Status, e.Message)
	}
	// Output:
	// true
	// 404 no such delegate
}

// A corporate network has a proxy with credentials, and CA certificates in a
// directory. New reports invalid settings.
func ExampleNew() {
	_, err := client.New("https://manager.example/delegates", "account", "0000000000000000000000000000fa4e",
		client.WithProtocol(client.V2),
		client.WithProxy(client.ProxyConfig{Host: "proxy.example", Port: 3128, User: "user", Password: "fake-password", NoProxy: "10.0.0.0/8"}),
		client.WithCACertsDir("/a/directory/that/does/not/exist"),
	)
	fmt.Println(errors.Is(err, fs.ErrNotExist))
	// Output: true
}
