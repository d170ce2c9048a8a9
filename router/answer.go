package router

import (
	"bytes"
	"fmt"
	"net/http"

	"github.com/delegate-io/dlite/task"
)

// held keeps an answer back until it is whole. It has no Unwrap: nothing may
// reach the writer underneath before that.
type held struct {
	header   http.Header
	status   int
	body     bytes.Buffer
	tooLarge bool
}

func (w *held) Header() http.Header { return w.header }

func (w *held) WriteHeader(status int) {
	if w.status == 0 && status >= 200 {
		w.status = status
	}
}

func (w *held) Write(b []byte) (int, error) {
	w.WriteHeader(http.StatusOK)
	if w.body.Len()+len(b) > task.MaxBody {
		w.tooLarge = true
		return 0, fmt.Errorf("the answer is larger than %d bytes", task.MaxBody)
	}
	return w.body.Write(b)
}

// send hands the answer over. An answer without a status stays one: it is for
// the caller to say what writing nothing means.
func (w *held) send(to http.ResponseWriter) {
	if w.tooLarge {
		task.WriteError(to, fmt.Errorf("the handler's answer is larger than %d bytes", task.MaxBody))
		return
	}
	for name, values := range w.header {
		to.Header()[name] = values
	}
	if w.status == 0 {
		return
	}
	to.WriteHeader(w.status)
	if w.body.Len() > 0 {
		_, _ = to.Write(w.body.Bytes()) // the reader may be gone; there is nobody left to tell
	}
}
