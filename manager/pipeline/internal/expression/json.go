package expression

import "errors"

var errJSON = errors.New("the function is not available yet")

func jsonSelect(*evaluation, []any) (any, error) { return nil, errJSON }

func jsonObject(*evaluation, []any) (any, error) { return nil, errJSON }

func jsonList(*evaluation, []any) (any, error) { return nil, errJSON }

func jsonFormat(*evaluation, []any) (any, error) { return nil, errJSON }
