package task

import "net/http"

// Watched passes an answer on and remembers its status, for middleware that has
// to know how a handler did.
type Watched struct {
	http.ResponseWriter
	// Status is that of the answer, 0 until there is one.
	Status int
}

// Watch makes a Watched of a handler's writer.
func Watch(w http.ResponseWriter) *Watched { return &Watched{ResponseWriter: w} }

// WriteHeader implements [http.ResponseWriter].
func (w *Watched) WriteHeader(status int) {
	if w.Status == 0 && status >= 200 { // 1xx does not end the head
		w.Status = status
	}
	w.ResponseWriter.WriteHeader(status)
}

// Write implements [http.ResponseWriter].
func (w *Watched) Write(b []byte) (int, error) {
	if w.Status == 0 {
		w.WriteHeader(http.StatusOK)
	}
	return w.ResponseWriter.Write(b)
}

// Unwrap lets [http.ResponseController] reach what is underneath.
func (w *Watched) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// Code is the outcome that the answer stands for, as [Serve] sees it.
func (w *Watched) Code() Code { return CodeOf(w.Status, w.Header()) }
