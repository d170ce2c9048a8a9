// Package task holds what a delegate and its handlers talk about: the [Task],
// the [Event] that announces it, the [Response] that answers it, and the
// [Handler] in between.
//
// A handler is an [http.Handler]. It can be written as one:
//
//	func (*Hello) ServeHTTP(w http.ResponseWriter, r *http.Request) {
//		var in struct{ Name string }
//		if _, err := task.Decode(r, &in); err != nil {
//			task.WriteBadRequest(w, err)
//			return
//		}
//		task.WriteJSON(w, map[string]string{"greeting": "hello " + in.Name}, 200)
//	}
//
// or as a function of its input and output, with [HandlerFunc]. Start reading
// at handler.go.
package task
