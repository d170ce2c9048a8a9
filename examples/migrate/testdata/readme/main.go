package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"time"

	"github.com/wings-software/dlite/client"
	"github.com/wings-software/dlite/delegate"
	"github.com/wings-software/dlite/httphelper"
	"github.com/wings-software/dlite/poller"
	"github.com/wings-software/dlite/router"
	"github.com/wings-software/dlite/task"
)

// RouteMap has the task implementations.
var RouteMap = map[string]task.Handler{
	"CI_DOCKER_INITIALIZE_TASK": &DockerInitializeTask{},
}

// DockerInitializeTask initializes a stage.
type DockerInitializeTask struct{}

type initRequest struct {
	Name string `json:"name"`
}

type initResponse struct {
	Greeting string `json:"greeting"`
}

func (t *DockerInitializeTask) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	task := &client.Task{}
	err := json.NewDecoder(r.Body).Decode(task)
	if err != nil {
		httphelper.WriteBadRequest(w, err)
		return
	}
	// Unmarshal the task data
	taskBytes, err := task.Data.MarshalJSON()
	if err != nil {
		httphelper.WriteBadRequest(w, err)
		return
	}
	d := &initRequest{}
	err = json.Unmarshal(taskBytes, d)
	if err != nil {
		httphelper.WriteBadRequest(w, err)
		return
	}
	httphelper.WriteJSON(w, initResponse{Greeting: "hello " + d.Name}, 200)
}

func main() {
	if err := run(context.Background(), os.Getenv("URL"), os.Getenv("ACCOUNT_ID"), os.Getenv("TOKEN")); err != nil {
		fmt.Println(err)
	}
}

func run(ctx context.Context, endpoint, id, secret string) error {
	// Register the routes
	router := router.NewRouter(RouteMap)
	// Create a delegate client
	client := delegate.New(endpoint, id, secret, false, "")
	// The poller needs the client and the router
	poller := poller.New(id, secret, "readme", []string{"linux"}, client, router)
	info, err := poller.Register(ctx)
	if err != nil {
		return err
	}
	return poller.Poll(ctx, 2, info.ID, 100*time.Millisecond)
}
