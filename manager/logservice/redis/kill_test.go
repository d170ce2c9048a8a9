package redis_test

const victimRedis = "DLITE_TEST_LOGS_VICTIM_REDIS"

func victim(string) {}
