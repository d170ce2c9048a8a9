package answers

import "net/http"

// Watched is a response writer that records the status of the answer, for
// middleware that needs the outcome of a handler.
type Watched struct {
	http.ResponseWriter
	// Status is the status of the answer, 0 before the handler writes it.
	Status int
}

// Watch returns a Watched that writes to w.
func Watch(w http.ResponseWriter) *Watched { return &Watched{ResponseWriter: w} }

// WriteHeader implements [http.ResponseWriter].
func (w *Watched) WriteHeader(status int) {
	if w.Status == 0 && status >= 200 { // 1xx is not the final status
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

// Unwrap returns the underlying writer, for [http.ResponseController].
func (w *Watched) Unwrap() http.ResponseWriter { return w.ResponseWriter }
