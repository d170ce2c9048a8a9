package otlp_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/delegate-io/dlite/logger"
	"github.com/delegate-io/dlite/logger/otlp"
)

func ExampleOpen() {
	collector := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		fmt.Println(r.Method, r.URL.Path)
	}))
	defer collector.Close()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()

	remote, err := otlp.Open(ctx, otlp.Config{Endpoint: collector.URL + "/v1/logs", Service: "my-delegate"})
	if err != nil {
		fmt.Println(err)
		return
	}
	log, closer, _ := logger.New(logger.Config{Output: io.Discard, Export: remote})
	log.Info().Msg("started")
	_ = closer.Close()
	fmt.Println(remote.Close(ctx))
	// Output:
	// POST /v1/logs
	// <nil>
}
