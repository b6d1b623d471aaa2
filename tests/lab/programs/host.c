/* Deaths of a program that uses no GPU. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int main(int count, char **words) {
  printf("began\n");
  fflush(stdout);
  if (count > 1 && !strcmp(words[1], "segfault")) *(volatile int *)0 = 1;
  if (count > 1 && !strcmp(words[1], "killed")) raise(SIGKILL);
  if (count > 1 && !strcmp(words[1], "memory"))
    for (;;) memset(malloc(1 << 20), 1, 1 << 20);
  return 0;
}
