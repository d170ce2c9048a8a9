package answers

import (
	"errors"
	"fmt"
	"net/http"
	"runtime/debug"
)

// Call runs a handler and returns when the handler does. It never panics: a panic
// becomes an error with its stack. The handler runs on its own goroutine, so one
// that ends its goroutine ([runtime.Goexit], a test's FailNow) becomes an error
// without a stack.
func Call(h http.Handler, w http.ResponseWriter, r *http.Request) (stack []byte, cause error) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		returned := false
		defer func() {
			if returned {
				return
			}
			cause = errors.New("the handler ended its goroutine")
			if p := recover(); p != nil { // panic(nil) has a value as well
				stack, cause = debug.Stack(), fmt.Errorf("the handler panicked: %v", p)
			}
		}()
		h.ServeHTTP(w, r)
		returned = true
	}()
	<-done
	return stack, cause
}
