// Package task defines the unit of work of a delegate: the [Task], the [Event]
// that announces it, the [Handler] that runs it, and the [Response] that answers
// it.
//
// A handler is an [http.Handler]:
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
// [HandlerFunc] makes a handler of a function of its input and output. The types
// of the protocols' tasks are constants, such as [TypeDockerInit]. Start reading
// at handler.go.
package task
